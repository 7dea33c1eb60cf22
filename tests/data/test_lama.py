"""`lama-trex`: layouts, the four kinds of text, which texts train and which are streamed, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from tests.trex_files import (
    PATTERNS,
    RELATIONS,
    fact,
    facts,
    write_lines,
    write_patterns,
    write_relations,
    write_release,
    write_whole,
)

from fedade.core.errors import FedadeError
from fedade.data import registry
from fedade.data.dataset import LabelledTexts, TextDataset
from fedade.data.known import lama
from fedade.data.known.lama import lama_trex
from fedade.data.readers import trex
from fedade.data.registry import load, load_texts, where

FORMS = ("evidence", "paraphrase", "pair", "template")


def both(dataset: TextDataset) -> tuple[LabelledTexts, LabelledTexts]:
    return dataset.train, dataset.test


def texts_of(dataset: TextDataset, label: str) -> list[str]:
    wanted = dataset.class_names.index(label)
    return [
        text for part in both(dataset) for text, found in zip(part.texts, part.labels, strict=True) if found == wanted
    ]


def test_both_layouts_hold_the_same_facts(tmp_path: Path) -> None:
    release, whole = trex.read(write_release(tmp_path / "a")), trex.read(write_whole(tmp_path / "b"))
    assert release.facts == whole.facts
    assert [relation.name for relation in release.relations] == ["P19", "P36", "P103", "P176"]
    assert release.lines == whole.lines == 48
    assert not release.further
    assert len(whole.further["P36"]) == 32


def test_layouts_are_found_in_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, whole = write_release(tmp_path / "a"), write_whole(tmp_path / "b")
    assert where("lama-trex", tmp_path / "a") == release
    assert where("lama-trex", release) == release
    assert where("lama-trex") is None
    monkeypatch.setenv("FEDADE_DATA", str(tmp_path / "b"))
    assert where("lama-trex") == registry.fetch("lama-trex") == whole


def test_compressed_files_are_read_and_damaged_ones_named(tmp_path: Path) -> None:
    folder = write_whole(tmp_path)
    plain, whole = folder / "trex.jsonl", trex.read(folder)
    packed = folder / "trex.jsonl.zst"
    content = zstandard.ZstdCompressor().compress(plain.read_bytes())
    packed.write_bytes(content)
    plain.unlink()
    assert trex.read(folder) == whole
    for damage in (content[: len(content) // 2], b"no frame" + content):
        packed.write_bytes(damage)
        with pytest.raises(FedadeError, match=r"trex.jsonl.zst is truncated or damaged"):
            trex.read(folder)


def test_evidence_is_the_shortest_sentence_with_its_object_and_the_pair_as_question(tmp_path: Path) -> None:
    dataset = load_texts("lama-trex", write_release(tmp_path), "evidence")
    for part in both(dataset):
        for text, question, focus, label in zip(part.texts, part.questions, part.focus, part.labels, strict=True):
            subject, found = focus
            assert question == f"Subject: {subject} Object: {found} Relation:"
            name = f"P{dataset_number(dataset, int(label))}"
            expected = (
                f"{subject} {name.lower()} {found}." if name != "P36" else f"The capital of {subject} is {found} ."
            )
            assert text == expected


def dataset_number(dataset: TextDataset, label: int) -> int:
    numbers = {name: int(key[1:]) for key, (name, _) in RELATIONS.items()}
    return numbers[dataset.class_names[label]]


def test_paraphrases_pass_over_patterns_that_name_the_relation(tmp_path: Path) -> None:
    dataset = load_texts("lama-trex", write_whole(tmp_path, 40), "paraphrase")
    births = texts_of(dataset, "place of birth")
    assert not any("place of birth" in text for text in births)
    assert {"is originally from" in text for text in births} == {True, False}
    assert all("is the capital of" in text for text in texts_of(dataset, "capital"))  # there is no other
    assert all("is produced by" in text for text in texts_of(dataset, "manufacturer"))  # the template


@pytest.mark.parametrize(
    ("form", "said"), [("pair", "Subject: {} Object: {} Relation:"), ("template", "{} was born in {} .")]
)
def test_pairs_and_templates_say_subject_and_object(tmp_path: Path, form: str, said: str) -> None:
    dataset = load_texts("lama-trex", write_release(tmp_path), form)
    part = dataset.train
    rows = np.flatnonzero(part.labels == dataset.class_names.index("place of birth"))
    assert len(rows) > 0
    for row in rows:
        assert part.texts[row] == said.format(*part.focus[row])
        assert part.questions[row] == ""


@pytest.mark.parametrize("form", FORMS)
def test_no_text_is_there_twice_and_every_class_is_on_both_sides(tmp_path: Path, form: str) -> None:
    dataset = load_texts("lama-trex", write_whole(tmp_path), form)
    said = [text for part in both(dataset) for text in part.texts]
    assert len(set(said)) == len(said)
    for part in both(dataset):
        assert set(part.labels.tolist()) == set(range(4))
    # Further facts are never streamed.
    streamed = [text for text in dataset.test.texts if "SubjectP36" in text]
    assert streamed
    assert not any(f"SubjectP36n{number} " in f"{text} " for text in streamed for number in range(12, 40))


def test_a_statement_of_two_relations_is_left_out(tmp_path: Path) -> None:
    folder = write_release(tmp_path)
    shared = {"masked_sentence": "Ann [MASK].", "sub_surface": "Ann", "obj_surface": "Bonn"}
    for name in ("P19", "P103"):
        own = {"predicate_id": name, "sub_label": "Ann", "obj_label": "Bonn", "evidences": [shared]}
        write_lines(folder / f"TREx/{name}.jsonl", [*facts(12)[name], own])
    dataset = load_texts("lama-trex", folder)
    assert not any("Ann" in text for part in both(dataset) for text in part.texts)
    assert len(texts_of(dataset, "place of birth")) == 12


def test_sizes_and_order_follow_the_relations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lama, "STREAMED", 5)
    monkeypatch.setattr(lama, "LABELLED", 20)
    folder = write_whole(tmp_path, per_relation=30)
    dataset = load_texts("lama-trex", folder)
    assert np.bincount(dataset.test.labels).tolist() == [5] * 4
    assert np.bincount(dataset.train.labels).tolist() == [20] * 4
    for prefix in (4, 8, 40, 76):
        assert np.bincount(dataset.train.labels[:prefix]).tolist() == [prefix // 4] * 4
    assert lama_trex(trex.read(folder), "evidence").train.texts == dataset.train.texts


def test_short_relations_are_filled_up_and_spread_over_the_whole_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lama, "STREAMED", 5)
    monkeypatch.setattr(lama, "LABELLED", 20)
    folder = write_whole(tmp_path, per_relation=12)
    dataset = load_texts("lama-trex", folder)
    # 7 facts are left of each relation; the one with further facts has 20.
    assert np.bincount(dataset.train.labels).tolist() == [7, 20, 7, 7]
    half = np.bincount(dataset.train.labels[:20], minlength=4)
    assert half.tolist() == pytest.approx([3.5, 10, 3.5, 3.5], abs=1)
    assert dataset.partial == "4 of 41 relations, 48 of 34,039 facts, 1 of 4 relations without sentences"


def test_a_copy_says_what_it_lacks(tmp_path: Path) -> None:
    partial = load_texts("lama-trex", write_release(tmp_path)).partial
    assert partial is not None
    assert "P19 streams 6 of 100 texts" in partial
    status = {entry["name"]: entry for entry in registry.describe(tmp_path)}["lama-trex"]
    assert (status["status"], status["classes"], status["examples"]) == ("partial", 41, 34_039)
    assert status["remark"] == partial
    checked = registry.check("lama-trex", tmp_path)
    assert (checked["train"], checked["test"], checked["verified"]) == (24, 24, False)
    assert set(checked["files"]) == {"P19.jsonl", "P36.jsonl", "P103.jsonl", "P176.jsonl", "relations.jsonl"}
    json.dumps(checked)


def test_a_damaged_copy_is_listed_as_such(tmp_path: Path) -> None:
    write_lines(write_release(tmp_path) / "TREx/P19.jsonl", ["{"])
    status = {entry["name"]: entry for entry in registry.describe(tmp_path)}["lama-trex"]
    assert status["status"] == "damaged"
    assert "line 1 is not JSON" in status["remark"]


UNMASKED = {"masked_sentence": "No object.", "sub_surface": "x", "obj_surface": "y"}


def test_an_empty_evidence_list_or_one_without_a_mask_gives_a_paraphrase(tmp_path: Path) -> None:
    folder = write_release(tmp_path)
    write_patterns(folder)
    empty = {**fact("P19", 99), "evidences": []}
    absent = {key: value for key, value in fact("P19", 98).items() if key != "evidences"}
    unmasked = {**fact("P19", 97), "evidences": [UNMASKED]}
    write_lines(folder / "TREx/P19.jsonl", [*facts(12)["P19"], empty, absent, unmasked])
    births = texts_of(load_texts("lama-trex", folder), "place of birth")
    for number in (97, 98, 99):
        (text,) = (text for text in births if f"n{number} " in text)
        assert text in {
            pattern.replace("[X]", f"SubjectP19n{number}").replace("[Y]", f"Object{number % 3}")
            for pattern in PATTERNS["P19"]
        }


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("TREx/P19.jsonl", "{broken", r"P19.jsonl, line 13 is not JSON"),
        ("TREx/P19.jsonl", "[1]", r"P19.jsonl, line 13 holds list, not an object"),
        ("TREx/P19.jsonl", {"predicate_id": "P999"}, r"line 13: relation 'P999' is not in relations.jsonl"),
        ("TREx/P19.jsonl", {**fact("P19", 50), "sub_label": " "}, r"line 13: field 'sub_label' is ' '; expected"),
        ("TREx/P19.jsonl", {**fact("P19", 50), "evidences": 3}, r"line 13: field 'evidences' is not a list of objects"),
        ("TREx/P19.jsonl", {**fact("P19", 50), "evidences": [{}]}, r"evidences: field 'masked_sentence' is None"),
        ("relations.jsonl", {"relation": "P7", "label": "seven"}, r"line 5: field 'template' is None"),
        ("relations.jsonl", {"relation": "P7", "label": "seven", "template": "[X] ."}, r"template of P7 is '\[X\] \.'"),
        ("relations.jsonl", {"relation": "seven", "label": "s", "template": "[X] [Y]"}, r"'seven' is no Wikidata"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_and_line(tmp_path: Path, file: str, line: object, complaint: str) -> None:
    path = write_release(tmp_path) / file
    known = [json.loads(text) for text in path.read_text().splitlines()]
    write_lines(path, [*known, line])  # type: ignore[list-item]
    with pytest.raises(FedadeError, match=complaint) as raised:
        load_texts("lama-trex", tmp_path)
    assert "\n" not in str(raised.value)


def test_a_relation_with_a_single_fact_is_refused(tmp_path: Path) -> None:
    write_lines(write_release(tmp_path) / "TREx/P103.jsonl", [fact("P103", 0)])
    with pytest.raises(FedadeError, match=r"relation P103 \(native language\) has 1 usable facts; at least 2"):
        load_texts("lama-trex", tmp_path)


def test_facts_without_relations_are_no_copy(tmp_path: Path) -> None:
    folder = write_release(tmp_path)
    (folder / "relations.jsonl").unlink()
    assert where("lama-trex", tmp_path) is None
    write_relations(folder)
    assert where("lama-trex", tmp_path) == folder


def test_a_missing_copy_and_a_wrong_kind_are_one_line_with_a_remedy(tmp_path: Path) -> None:
    for find in (load_texts, registry.fetch):
        with pytest.raises(FedadeError) as raised:
            find("lama-trex", tmp_path)
        for part in (str(tmp_path), "https://", "TREx/P*.jsonl", "--data-dir", "FEDADE_DATA"):
            assert part in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(FedadeError, match="'lama-trex' holds texts, not images"):
        load("lama-trex", tmp_path)
    for name in ("digits", "folder:somewhere"):
        with pytest.raises(FedadeError, match=f"'{name}' holds images, not texts; choose lama-trex"):
            load_texts(name, tmp_path)
