"""LAMA's T-REx: facts of Wikidata with sentences of Wikipedia that state them (Petroni et al. 2019).

Two layouts are read: the LAMA release as unpacked (`TREx/P*.jsonl` beside `relations.jsonl`), and all facts in one
`trex.jsonl` beside the same `relations.jsonl`. Either may come with `pararel_patterns.jsonl`, paraphrases of the
templates (ParaRel, Elazar et al. 2021), and `lpaqa_trex_train.jsonl`, further facts (LPAQA, Jiang et al. 2020).
Files may be compressed (`.jsonl.zst`).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.data.download import damaged

zstandard: Any = OptionalModule("zstandard", "text")
COMPRESSED = ".zst"
RELATIONS, FACTS, FOLDER = "relations.jsonl", "trex.jsonl", "TREx"
PATTERNS, FURTHER = "pararel_patterns.jsonl", "lpaqa_trex_train.jsonl"
MASK = "[MASK]"


class JsonRecord(NamedTuple):
    """One object and where it stands, so that a message can name the line."""

    content: dict[str, Any]
    place: str

    def text(self, field: str) -> str:
        """A field that must be there and hold some text."""
        value = self.content.get(field)
        if not isinstance(value, str) or not value.strip():
            raise FedadeError(f"{self.place}: field {field!r} is {value!r}; expected some text")
        return value

    def records(self, field: str) -> list["JsonRecord"]:
        """A list of objects; empty where the field is absent."""
        value = self.content.get(field) or []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise FedadeError(f"{self.place}: field {field!r} is not a list of objects; replace the file")
        return [JsonRecord(entry, f"{self.place}, {field}") for entry in value]


def read_records(path: Path) -> Iterator[JsonRecord]:
    for number, line in enumerate(_content(path).splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            content = json.loads(line)
        except ValueError as error:
            raise FedadeError(f"{place} is not JSON ({error}); mend the line or replace the file") from error
        if not isinstance(content, dict):
            raise FedadeError(f"{place} holds {type(content).__name__}, not an object; mend or replace the file")
        yield JsonRecord(content, place)


def existing(folder: Path, name: str) -> Path | None:
    """The file of a name in a folder, plain or else compressed; None when there is neither."""
    return next((path for path in (folder / name, folder / f"{name}{COMPRESSED}") if path.is_file()), None)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FedadeError(f"cannot read {path}: {error.strerror}") from error
    if path.suffix != COMPRESSED:
        return content
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        unpacked: bytes = frame.decompress(content)
    except zstandard.ZstdError as error:
        raise damaged(path, str(error)) from error
    if not frame.eof:
        raise damaged(path, "the compressed frame breaks off")
    return unpacked


class EvidenceSentence(NamedTuple):
    """A sentence that states a fact, and what it calls subject and object."""

    sentence: str
    subject: str
    object: str


class Fact(NamedTuple):
    """A subject, an object and the sentences that relate them, if there are any."""

    subject: str
    object: str
    evidences: tuple[EvidenceSentence, ...] = ()


class Relation(NamedTuple):
    """A Wikidata property: its number, its name, and patterns with [X] for the subject and [Y] for the object."""

    number: int
    label: str
    template: str
    paraphrases: tuple[str, ...]

    @property
    def name(self) -> str:
        """As Wikidata writes it, such as P19."""
        return f"P{self.number}"


@dataclass(frozen=True)
class Trex:
    """All that a folder holds, by relation; relations in the order of their numbers."""

    relations: tuple[Relation, ...]
    """Relations that have facts."""
    facts: Mapping[str, tuple[Fact, ...]]
    further: Mapping[str, tuple[Fact, ...]]
    """Facts that are not LAMA's and have no sentences."""
    lines: int
    """Facts as LAMA's files give them, of which a few are repeated."""


def recognises(folder: Path) -> bool:
    return bool(existing(folder, RELATIONS) and _fact_files(folder))


def files(folder: Path) -> list[Path]:
    others = (existing(folder, name) for name in (RELATIONS, PATTERNS, FURTHER))
    return [*_fact_files(folder), *(path for path in others if path is not None)]


def read(folder: Path) -> Trex:
    relations = _relations(folder)
    facts, lines = _facts(_fact_files(folder), relations)
    further = existing(folder, FURTHER)
    own = tuple(sorted(relation for relation in relations.values() if relation.name in facts))
    return Trex(own, facts, _facts([further], relations)[0] if further else {}, lines)


def _fact_files(folder: Path) -> list[Path]:
    whole = existing(folder, FACTS)
    return [whole] if whole else sorted((folder / FOLDER).glob("P*.jsonl"))


def _relations(folder: Path) -> dict[str, Relation]:
    path, patterns = existing(folder, RELATIONS), existing(folder, PATTERNS)
    if path is None:
        raise FedadeError(f"{folder} has no {RELATIONS}, which names the relations; add it from the LAMA release")
    paraphrases = defaultdict(list)
    for record in read_records(patterns) if patterns else ():
        paraphrases[record.text("relation")].append(_pattern(record, "pattern"))
    return {
        name: Relation(_number(record), record.text("label"), _pattern(record, "template"), tuple(paraphrases[name]))
        for record in read_records(path)
        for name in (record.text("relation"),)
    }


def _number(record: JsonRecord) -> int:
    name = record.text("relation")
    if not (name.startswith("P") and name[1:].isdecimal()):
        raise FedadeError(f"{record.place}: relation {name!r} is no Wikidata property; expected a name such as P19")
    return int(name[1:])


def _pattern(record: JsonRecord, field: str) -> str:
    pattern = record.text(field)
    if "[X]" not in pattern or "[Y]" not in pattern:
        raise FedadeError(
            f"{record.place}: the {field} of {record.text('relation')} is {pattern!r}; "
            "expected [X] where the subject stands and [Y] where the object stands"
        )
    return pattern


def _facts(paths: Iterable[Path], relations: Mapping[str, Relation]) -> tuple[dict[str, tuple[Fact, ...]], int]:
    """Every fact once, by relation, and the number of lines; evidence of a fact that is given twice adds up."""
    lines = 0
    evidences: dict[str, dict[tuple[str, str], list[EvidenceSentence]]] = defaultdict(dict)
    for path in paths:
        for record in read_records(path):
            lines += 1
            name = record.text("predicate_id")
            if name not in relations:
                raise FedadeError(f"{record.place}: relation {name!r} is not in {RELATIONS}; add it or remove the line")
            pair = record.text("sub_label"), record.text("obj_label")
            evidences[name].setdefault(pair, []).extend(_evidences(record))
    facts = {
        name: tuple(Fact(*pair, tuple(dict.fromkeys(evidences))) for pair, evidences in pairs.items())
        for name, pairs in evidences.items()
    }
    return facts, lines


def _evidences(record: JsonRecord) -> list[EvidenceSentence]:
    """Sentences with the object put back where it was masked; a sentence without a mask states no object."""
    return [
        EvidenceSentence(sentence.replace(MASK, shown), evidence.text("sub_surface"), shown)
        for evidence in record.records("evidences")
        for sentence, shown in ((evidence.text("masked_sentence"), evidence.text("obj_surface")),)
        if MASK in sentence
    ]
