"""Conditions that come, stay and come back, known by what they leave in the layers."""

from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.methods.fed_ade_plus.conditions import (
    LASTING,
    NEW,
    Evidence,
    Recognised,
    Residual,
    joined,
    of_condition,
    place_to_remember,
    recognise,
    remembered,
    squared_differences,
    together,
    width,
)

from ...maths.samples import QUICK

LAYERS, CHANNELS, SAMPLES = 3, 40, 50


def nothing(conditions: int) -> Residual:
    return Residual(
        torch.zeros(conditions, 1, CHANNELS, dtype=torch.float64), torch.zeros(conditions, 1, 1, dtype=torch.float64)
    )


def known(offsets: list[float], samples: list[float], channels: int = CHANNELS) -> Residual:
    """Conditions that left the same everywhere."""
    sizes = torch.tensor(offsets, dtype=torch.float64)[:, None, None].expand(-1, 1, channels)
    return Residual(sizes, torch.tensor(samples, dtype=torch.float64)[:, None, None])


def batch(offset: float, seed: int) -> list[torch.Tensor]:
    """What a batch leaves in each layer: its condition's offset, and chance."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(LAYERS, 1, CHANNELS, generator=generator, dtype=torch.float64) / SAMPLES**0.5
    return list(offset + noise)


def far(size: torch.Tensor, past: Residual) -> torch.Tensor:
    """From every condition, where a sample has variance 1."""
    return squared_differences(size, past.size, 1 / width(SAMPLES, past).expand_as(past.size))


def heard(sizes: list[torch.Tensor], memory: list[Residual]) -> Recognised:
    """What all layers together say."""
    said = [
        Evidence(far(size, past).sum((-2, -1)), size.numel() * width(SAMPLES, past).log().sum((-2, -1)), size.numel())
        for size, past in zip(sizes, memory, strict=True)
    ]
    return recognise(reduce(together, said))


def stream(offsets: list[float], conditions: int, doubt: float = 2.0) -> list[tuple[list[Residual], list[Residual]]]:
    """What counted for each batch, and all that was remembered after it, layer by layer."""
    memory, history = [nothing(conditions)] * LAYERS, []
    for seed, offset in enumerate(offsets):
        sizes = batch(offset, seed)
        found = heard(sizes, memory)
        counted = [
            joined(*of_condition(past, far(size, past), found), size, SAMPLES, doubt)
            for size, past in zip(sizes, memory, strict=True)
        ]
        here = place_to_remember(found, memory[0].samples.flatten())
        memory = [remembered(past, new, here) for past, new in zip(memory, counted, strict=True)]
        history.append((counted, memory))
    return history


def test_batches_of_one_condition_add_up():
    history = stream([0.5] * 6, conditions=3)
    assert [float(counted[0].samples) for counted, _ in history] == [50, 100, 150, 200, 250, 300]
    errors = [float((counted[0].size - 0.5).norm()) for counted, _ in (history[0], history[-1])]
    assert errors[1] < errors[0] / 1.5
    assert all(float((past.samples > 0).sum()) == 1 for past in history[-1][1])


def test_a_condition_that_comes_back_is_known_at_once():
    there_and_back = [1.0] * 4 + [0.0] * 4 + [1.0]
    remembers, forgets = (stream(there_and_back, conditions)[-1][0][0] for conditions in (2, 1))
    assert float(remembers.samples) > 200
    assert float(forgets.samples) == SAMPLES
    assert float((remembers.size - 1.0).norm()) < float((forgets.size - 1.0).norm())


def test_a_new_condition_starts_from_its_own_batch():
    counted, memory = stream([0.0] * 6 + [1.0], conditions=2)[-1]
    assert all(float(one.samples) == SAMPLES for one in counted)
    assert sorted(memory[0].samples.flatten().tolist()) == pytest.approx([SAMPLES, LASTING * 300])


def test_a_new_condition_takes_the_place_of_the_one_with_the_fewest_samples():
    *_, (_, memory) = stream([1.0] * 6 + [0.0] + [-1.0], conditions=2)
    assert sorted(memory[0].size.mean(-1).flatten().tolist()) == pytest.approx([-1.0, 1.0], abs=0.2)


def test_conditions_that_are_not_met_fade():
    history = stream([1.0] * 6 + [0.0] * 10, conditions=3)
    met, later = (history[place][1][0].samples.flatten() for place in (5, -1))
    assert later[0] == pytest.approx(LASTING**10 * float(met[0]))
    assert later[1] > met[1] == 0
    assert later[2] == 0


def test_what_one_layer_cannot_tell_all_together_can():
    """A difference of half the deviation of a mean is lost in few channels and plain in many."""
    past = known([0.0, 0.35], [1e6, 1e6], channels=2)
    right = {1: 0, LAYERS: 0}
    for seed in range(200):
        sizes = [size[:, :2] for size in batch(0.35, seed)]
        for number in right:
            right[number] += int(heard(sizes[:number], [past] * number).place)
    assert right[1] < right[LAYERS]


def test_a_condition_that_is_known_but_vaguely_does_not_take_everything():
    """It is near every batch in units of its own uncertainty; the likelihood has the width to pay for."""
    assert heard(batch(0.0, 1), [known([0.0, 0.0], [400.0, 0.01])] * LAYERS).place == 0


@QUICK
@given(st.integers(0, 1000), st.floats(0, 3))
def test_the_ratio_is_one_by_chance_and_grows_with_the_difference(seed, offset):
    found = heard(batch(offset, seed), [known([0.0], [1e9])] * LAYERS)
    assert float(found.ratio) == pytest.approx(1 + SAMPLES * offset**2, abs=0.8 + 6 * offset)


@QUICK
@given(st.floats(0, 5), st.floats(0, 400), st.floats(0, 4))
def test_joining_counts_no_more_than_there_was(offset, samples, doubt):
    past, size = known([offset], [samples]), torch.zeros(1, CHANNELS, dtype=torch.float64)
    found = joined(past, far(size, past), size, SAMPLES, doubt)
    assert SAMPLES <= float(found.samples) <= SAMPLES + samples
    assert (found.size >= 0).all()
    assert (found.size <= offset).all()


def test_without_doubt_nothing_is_remembered():
    history = stream([0.5] * 3, conditions=1, doubt=0.0)
    assert all(float(counted[0].samples) == SAMPLES for counted, _ in history)


def test_past_samples_are_dropped_as_far_as_something_changed():
    past, size = known([3.0], [400.0]), torch.zeros(1, CHANNELS, dtype=torch.float64)
    assert float(joined(past, far(size, past), size, SAMPLES, 2.0).samples) < SAMPLES + 1


def test_without_conditions_the_last_batches_are_remembered():
    past = nothing(1)
    for seed in range(3):
        size = batch(0.5, seed)[0]
        past = joined(past, far(size, past), size, SAMPLES, 2.0)
    assert past.samples.flatten().tolist() == [150]
    assert past.size.shape == (1, 1, CHANNELS)


def test_beyond_the_threshold_a_batch_is_of_no_known_condition():
    past = known([0.0], [400.0])
    for offset in (0.0, 0.4):
        sizes = batch(offset, 3)
        found = heard(sizes, [past] * LAYERS)
        kept, _ = of_condition(past, far(sizes[0], past), found)
        assert float(kept.samples) == (400 if found.ratio <= NEW else 0)
        assert bool(found.ratio <= NEW) == (offset == 0.0)
