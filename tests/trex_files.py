"""Made-up copies of LAMA's T-REx, in the layouts that are read."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RELATIONS = {
    "P19": ("place of birth", "[X] was born in [Y] ."),
    "P36": ("capital", "The capital of [X] is [Y] ."),
    "P103": ("native language", "The native language of [X] is [Y] ."),
    "P176": ("manufacturer", "[X] is produced by [Y] ."),
}
PATTERNS = {
    "P19": ("[X] is originally from [Y].", "[X] came into the world in [Y].", "[X], whose place of birth is [Y]."),
    "P36": ("[Y] is the capital of [X].",),
}
SILENT = ("P36",)
"""Relations without sentences."""


def fact(relation: str, number: int, evidence: bool = True) -> dict[str, Any]:
    """A fact of a relation, with two sentences or none."""
    subject, found = f"Subject{relation}n{number}", f"Object{number % 3}"
    said = {"sub_surface": subject, "obj_surface": found}
    sentences = [
        f"It is said that {subject} and, as far as {relation.lower()} goes, [MASK] belong together.",
        f"{subject} {relation.lower()} [MASK].",
    ]
    evidences = [{**said, "masked_sentence": sentence} for sentence in sentences] if evidence else []
    return {"predicate_id": relation, "sub_label": subject, "obj_label": found, "evidences": evidences}


def facts(per_relation: int) -> dict[str, list[dict[str, Any]]]:
    """Facts of every relation."""
    return {name: [fact(name, number, name not in SILENT) for number in range(per_relation)] for name in RELATIONS}


def write_lines(path: Path, lines: Iterable[Mapping[str, Any] | str]) -> Path:
    """A file with a JSON object, or whatever is given, per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def write_relations(folder: Path) -> Path:
    """`relations.jsonl`."""
    lines = [{"relation": name, "label": label, "template": text} for name, (label, text) in RELATIONS.items()]
    return write_lines(folder / "relations.jsonl", lines)


def write_patterns(folder: Path) -> Path:
    """`pararel_patterns.jsonl`."""
    lines = [{"relation": name, "pattern": pattern} for name, patterns in PATTERNS.items() for pattern in patterns]
    return write_lines(folder / "pararel_patterns.jsonl", lines)


def write_release(root: Path, per_relation: int = 12) -> Path:
    """The LAMA release as unpacked."""
    folder = root / "data"
    write_relations(folder)
    for name, lines in facts(per_relation).items():
        write_lines(folder / f"TREx/{name}.jsonl", lines)
    return folder


def write_whole(root: Path, per_relation: int = 12) -> Path:
    """All facts in one file, with paraphrases and further facts."""
    folder = root / "lama_trex"
    write_relations(folder)
    write_patterns(folder)
    write_lines(folder / "trex.jsonl", [line for lines in facts(per_relation).values() for line in lines])
    write_lines(folder / "lpaqa_trex_train.jsonl", [fact("P36", number, evidence=False) for number in range(8, 40)])
    return folder
