"""A memory of a fixed number of past samples, which rules fill one sample at a time, and when it is time to learn.

Rules see labels and ages, not inputs: those are moved once, when all samples of a batch have found their place.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.context import ClientContext
from fedade.core.tree import choose
from fedade.maths.counter import uniform

EMPTY = -1


class Places(NamedTuple):
    """What is known of the N places of a memory."""

    labels: Tensor
    """Predicted classes, `[N]`; -1 where a place is empty."""
    uncertainty: Tensor
    """Entropies as shares of ln K, `[N]`."""
    born: Tensor
    """How many samples had come before, `[N]`."""
    source: Tensor
    """Rows of the present batch that lie there, `[N]`; -1 where it is an older sample."""

    @property
    def taken(self) -> Tensor:
        return self.labels != EMPTY

    def per_class(self, num_classes: int) -> Tensor:
        return (self.labels.unsqueeze(-1) == torch.arange(num_classes, device=self.labels.device)).sum(0)


class SampleMemory(NamedTuple):
    """Past samples, how many came of each class, and how many came in all."""

    inputs: Tensor  # [N, ...]
    places: Places
    class_counts: Tensor  # [K]
    seen: Tensor


class Newcomer(NamedTuple):
    """A sample that asks for a place."""

    label: Tensor
    uncertainty: Tensor
    draws: Tensor
    """Random numbers: one per place, and one more."""
    seen: Tensor
    """How many samples came before it."""
    class_count: Tensor
    """How many of its predicted class came, itself included."""


Rule = Callable[[Places, Newcomer, int], Tensor]
"""From places, a newcomer and the number of classes to the place that it is given, `[N]`: one is true, or none."""


class Occasion(NamedTuple):
    """A moment at which a period ended, if it did: what the memory held then."""

    due: Tensor
    inputs: Tensor
    places: Places
    seen: Tensor


def empty_memory(ctx: ClientContext, size: int) -> SampleMemory:
    prior, like = ctx.deployment.source_prior, ctx.inputs
    zeros = prior.new_zeros(size)
    nowhere = torch.full_like(zeros, EMPTY, dtype=torch.int64)
    places = Places(nowhere, zeros, torch.zeros_like(nowhere), nowhere)
    counts = torch.zeros_like(prior, dtype=torch.int64)
    return SampleMemory(like.new_zeros((size, *like.shape[1:])), places, counts, counts.sum())


def remember(
    memory: SampleMemory, ctx: ClientContext, probabilities: Tensor, uncertainty: Tensor, rule: Rule, period: int
) -> tuple[SampleMemory, Sequence[Occasion]]:
    """The memory after a batch whose classes are predicted so, and the ends of periods that it brought. There is an
    occasion for every `period` samples or fewer of the batch, which all clients have; whether a period ended in it
    depends on what each has seen."""
    labels, num_classes = probabilities.argmax(-1), probabilities.shape[-1]
    draws = uniform(ctx.key, (len(labels), len(memory.inputs) + 1))
    places = memory.places._replace(source=torch.full_like(memory.places.source, EMPTY))
    counts, seen, occasions = memory.class_counts, memory.seen, []
    for first in range(0, len(labels), period):
        due, then = torch.zeros_like(seen, dtype=torch.bool), places
        for row in range(first, min(first + period, len(labels))):
            counts = counts + (torch.arange(num_classes, device=labels.device) == labels[row])
            newcomer = Newcomer(labels[row], uncertainty[row], draws[row], seen, counts[labels[row]])
            places = _placed(places, newcomer, rule(places, newcomer, num_classes), row)
            seen = seen + 1
            ended = seen % period == 0
            due, then = due | ended, Places(*choose(ended, places, then))
        occasions.append(Occasion(due, _inputs(memory, ctx.inputs, then), then, seen // period * period))
    return SampleMemory(_inputs(memory, ctx.inputs, places), places, counts, seen), occasions


def first_empty(places: Places) -> Tensor:
    return _only(~places.taken, (~places.taken).to(torch.float32))


def best_of(candidates: Tensor, scores: Tensor) -> Tensor:
    """The candidate with the highest score, if there is a candidate."""
    return _only(candidates, torch.where(candidates, scores, -torch.inf))


def _only(candidates: Tensor, scores: Tensor) -> Tensor:
    places = torch.arange(len(scores), device=scores.device)
    return (places == scores.argmax(-1)) & candidates.any(-1)


def _placed(places: Places, newcomer: Newcomer, where: Tensor, row: int) -> Places:
    return Places(
        torch.where(where, newcomer.label, places.labels),
        torch.where(where, newcomer.uncertainty, places.uncertainty),
        torch.where(where, newcomer.seen, places.born),
        torch.where(where, row, places.source),
    )


def _inputs(memory: SampleMemory, batch: Tensor, places: Places) -> Tensor:
    fresh = (places.source != EMPTY).reshape(-1, *(1,) * (batch.ndim - 1))
    return torch.where(fresh, batch[places.source.clamp_min(0)].to(memory.inputs.dtype), memory.inputs)
