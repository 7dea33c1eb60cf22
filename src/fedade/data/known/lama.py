"""`lama-trex`: which relation does a text state? 41 relations of LAMA's T-REx as classes.

The paper gives 41 tasks of 100 samples each and no more; a class is a task, so that clients can have tasks of their
own and their frequencies can drift. A fact is put into words in one of four ways:

* `evidence`: its shortest sentence of Wikipedia, then the pair that is asked about, because a sentence relates more
  than one pair; a paraphrase takes the sentence's place for facts without one;
* `paraphrase`: a random paraphrase of the relation's template; the template where there is none;
* `pair`: subject and object alone;
* `template`: the relation's template, nearly trivial.

The relation's name is added to no text, and paraphrases that contain it are passed over where there are others.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.data.dataset import LabelledTexts, TextDataset, TextInput
from fedade.data.readers import trex as layout
from fedade.data.readers.trex import Fact, Relation, Trex
from fedade.data.specs import TextSpec

NUM_RELATIONS = 41
NUM_FACTS = 34_039
"""Facts of the LAMA release."""
STREAMED = 100
"""Texts of a relation on the test side, as in the paper."""
LABELLED = 480
"""Texts of a relation on the training side, where there are so many."""
_SEEDS = Seeds(0)
"""The same texts on the same side for every run."""


class _Example(NamedTuple):
    statement: str
    focus: tuple[str, ...]
    question: str = ""


class _Side(NamedTuple):
    streamed: list[_Example]
    labelled: list[_Example]


def lama_trex(trex: Trex, form: TextInput) -> TextDataset:
    """The dataset from its facts; always the same texts on the same side. No fact and no statement is there twice, and
    a statement of two relations is left out: nobody could tell which is meant. Facts that are not LAMA's are never
    streamed; they fill up relations that are short of labelled texts."""
    own, more = [], []
    for relation in trex.relations:
        facts, further = trex.facts[relation.name], trex.further.get(relation.name, ())
        known = {fact[:2] for fact in facts}
        own.append(_examples(relation, facts, form, "lama"))
        more.append(_examples(relation, [fact for fact in further if fact[:2] not in known], form, "further"))
    clear = _unambiguous([*own, *more], 2 * list(range(len(own))))
    sides = [
        _divided(relation, stated, further)
        for relation, stated, further in zip(trex.relations, clear[: len(own)], clear[len(own) :], strict=True)
    ]
    return TextDataset(
        name="lama-trex",
        class_names=tuple(relation.label for relation in trex.relations),
        train=_spread([side.labelled for side in sides]),
        test=_spread([side.streamed for side in sides]),
        partial=_lacking(trex, sides),
    )


def _examples(relation: Relation, facts: Sequence[Fact], form: TextInput, origin: str) -> list[_Example]:
    patterns: Sequence[str] = (relation.template,)
    if form != "template" and relation.paraphrases:  # without those that name the relation, if there are others
        nameless = [one for one in relation.paraphrases if relation.label.lower() not in one.lower()]
        patterns = nameless or relation.paraphrases
    draws = _SEEDS.generator(f"{origin}-pattern", relation=relation.number).random(len(facts))
    return [_example(fact, patterns[int(draw * len(patterns))], form) for fact, draw in zip(facts, draws, strict=True)]


def _example(fact: Fact, pattern: str, form: TextInput) -> _Example:
    pair = f"Subject: {fact.subject} Object: {fact.object} Relation:"
    if form == "pair":
        return _Example(pair, (fact.subject, fact.object))
    question = pair if form == "evidence" else ""
    if form == "evidence" and fact.evidences:
        evidence = min(fact.evidences, key=lambda evidence: (len(evidence.sentence), evidence.sentence))
        return _Example(evidence.sentence, (evidence.subject, evidence.object), question)
    filled = pattern.replace("[X]", fact.subject).replace("[Y]", fact.object)
    return _Example(filled, (fact.subject, fact.object), question)


def _unambiguous(groups: Sequence[Sequence[_Example]], labels: Sequence[int]) -> list[list[_Example]]:
    """The groups without statements of two labels, and every other statement once."""
    owners: dict[str, set[int]] = defaultdict(set)
    for label, examples in zip(labels, groups, strict=True):
        for example in examples:
            owners[example.statement].add(label)
    seen: set[str] = set()

    def first(example: _Example) -> bool:
        new = len(owners[example.statement]) == 1 and example.statement not in seen
        seen.add(example.statement)
        return new

    return [list(filter(first, examples)) for examples in groups]


def _divided(relation: Relation, own: Sequence[_Example], further: Sequence[_Example]) -> _Side:
    """Streamed and labelled texts; where texts are short, at most half of them are streamed."""
    streamed = min(STREAMED, len(own), (len(own) + len(further)) // 2)
    if streamed == 0:
        raise FedadeError(
            f"relation {relation.name} ({relation.label}) has {len(own) + len(further)} usable facts; at least 2 are "
            "needed, one to stream and one to train on: add facts or remove the relation's"
        )
    mixed = _shuffled(own, "lama-order", relation)
    labelled = [*mixed[streamed:], *_shuffled(further, "further-order", relation)][:LABELLED]
    return _Side(mixed[:streamed], _shuffled(labelled, "lama-labelled", relation))


def _shuffled(examples: Sequence[_Example], purpose: str, relation: Relation) -> list[_Example]:
    order = _SEEDS.generator(purpose, relation=relation.number).permutation(len(examples))
    return [examples[row] for row in order]


def _spread(by_label: Sequence[Sequence[_Example]]) -> LabelledTexts:
    """All examples, each class evenly over the whole: any prefix has the classes in the whole's proportions."""
    order = sorted(
        ((rank + 0.5) / len(examples), label, rank)
        for label, examples in enumerate(by_label)
        for rank in range(len(examples))
    )
    chosen = [by_label[label][rank] for _, label, rank in order]
    return LabelledTexts(
        tuple(example.statement for example in chosen),
        np.array([label for _, label, _ in order], dtype=np.int64),
        tuple(example.focus for example in chosen),
        tuple(example.question for example in chosen),
    )


def _lacking(trex: Trex, sides: Iterable[_Side]) -> str | None:
    """What this copy lacks of the LAMA release, and which relations stream fewer texts than they should."""
    relations = len(trex.relations)
    silent = sum(not any(fact.evidences for fact in trex.facts[relation.name]) for relation in trex.relations)
    short = [
        f"{relation.name} streams {len(side.streamed)} of {STREAMED} texts"
        for relation, side in zip(trex.relations, sides, strict=True)
        if len(side.streamed) < STREAMED
    ]
    lacking = [
        *([f"{relations} of {NUM_RELATIONS} relations"] if relations < NUM_RELATIONS else []),
        *([f"{trex.lines:,} of {NUM_FACTS:,} facts"] if trex.lines < NUM_FACTS else []),
        *([f"{silent} of {relations} relations without sentences"] if silent else []),
        *short,
    ]
    return ", ".join(lacking) or None


LAMA_TREX = TextSpec(
    name="lama-trex",
    num_classes=NUM_RELATIONS,
    facts=NUM_FACTS,
    folders=("lama_trex", "lama-trex", "LAMA/data", "LAMA", "lama", "data", "."),
    holds="TREx/P*.jsonl and relations.jsonl",
    url="https://dl.fbaipublicfiles.com/LAMA/data.zip",
    recognises=layout.recognises,
    files=layout.files,
    read=lambda folder, form: lama_trex(layout.read(folder), form),
)
