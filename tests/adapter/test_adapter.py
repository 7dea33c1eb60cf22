"""An adapter learns from batches of any size, remembers, and is never made worse by what it is given."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

import fedade
from fedade.adapter.judging import Verdict
from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.methods import METHODS
from fedade.methods.tent import Tent

from ..helpers import QUICKER, quick
from .networks import kept, labels_for, made

NEEDS_MORE = {
    **{name: "oracle" for name in METHODS if "oracle" in name},
    "fix-lr-mean": "replays rates",
    "shuffled-lr": "replays rates",
}


@pytest.fixture(scope="module")
def sample():
    return made("small cnn")


@pytest.fixture(scope="module")
def deployment(sample):
    return fedade.deploy(sample.model, (sample.inputs, labels_for(sample)))


def batches(count: int, size: int = 40, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(size, 3, 12, 10, generator=generator) + 0.3 for _ in range(count)]


def bits(adapter: fedade.Adapter) -> dict[str, Tensor]:
    memory = adapter._memory
    remembered = tree.to_named((memory.state, memory.shared, memory.waiting, memory.plan), "")
    return {name: leaf.clone() for name, leaf in remembered.items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_adapts_alone_or_says_why_not(name, sample, deployment):
    if name in NEEDS_MORE:
        with pytest.raises(FedadeError, match=NEEDS_MORE[name]):
            fedade.Adapter(deployment, name)
        return
    before = kept(sample.model)
    adapter, answers = fedade.Adapter(deployment, quick(name, QUICKER)), []
    for batch in batches(2):
        answers.append(adapter(batch))
        assert answers[-1].shape == (40, 4)
        torch.testing.assert_close(answers[-1].sum(-1), torch.ones(40))
    assert adapter.status.learned == 2
    assert (adapter.status.rolled_back, adapter.status.refused) == (0, 0)
    adapter.reset()
    assert all(torch.equal(adapter(batch), answer) for batch, answer in zip(batches(2), answers, strict=True))
    assert all(torch.equal(value, before[key]) for key, value in sample.model.state_dict().items())


@pytest.mark.parametrize("name", ["fed-ade-plus", "fed-ade", "tent", "cotta"])
def test_saved_and_loaded_it_goes_on_with_the_same_bits(name, deployment, tmp_path):
    first, *later = batches(3)
    adapter = fedade.Adapter(deployment, name, seed=3)
    adapter(first)
    adapter(first[:5])
    adapter.save(tmp_path / "adapter.safetensors")
    again = fedade.Adapter.load(tmp_path / "adapter.safetensors", deployment)
    assert again.status.samples == 45
    assert again.status.waiting == 5
    assert same(bits(adapter), bits(again))
    for batch in later:
        assert torch.equal(again(batch), adapter(batch))


def test_what_does_not_belong_together_is_refused_with_both_named(deployment, tmp_path):
    path = tmp_path / "adapter.safetensors"
    fedade.Adapter(deployment).save(path)
    other = made("small cnn", seed=1)
    strange = fedade.deploy(other.model, (other.inputs, labels_for(other)))
    with pytest.raises(FedadeError, match=f"deployment {deployment.digest}, not {strange.digest}"):
        fedade.Adapter.load(path, strange)
    with pytest.raises(FedadeError, match=r"stored for fed-ade-plus with .* not for tent"):
        fedade.Adapter.load(path, deployment, method=Tent())
    with pytest.raises(FedadeError, match="is missing"):
        fedade.Adapter.load(tmp_path / "nothing", deployment)
    (tmp_path / "damaged").write_bytes(path.read_bytes()[:100])
    with pytest.raises(FedadeError, match=r"is damaged .*; go on from an earlier one"):
        fedade.Adapter.load(tmp_path / "damaged", deployment)
    (tmp_path / "file").touch()
    with pytest.raises(FedadeError, match="cannot write"):
        fedade.Adapter(deployment).save(tmp_path / "file" / "adapter")


NAN = torch.full((40, 3, 12, 10), torch.nan)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.rand(0, 3, 12, 10), r"shape \[0, 3, 12, 10\]"),
        (torch.rand(3, 12, 10), r"one input alone is inputs\[None\]"),
        (torch.rand(4, 3, 12, 11), "expected"),
        (torch.tensor(1.0), "expected"),
        (torch.ones(4, 3, 12, 10, dtype=torch.uint8), "is torch.uint8, the held-out inputs were torch.float32"),
        (torch.ones(4, 3, 12, 10, dtype=torch.complex64), "complex"),
        (torch.ones(4, 3, 12, 10).to_sparse(), "sparse"),
        (torch.ones(4, 3, 12, 10, device="meta"), "meta"),
        ("images", "cannot be read as a tensor"),
        (None, "cannot be read as a tensor"),
    ],
)
def test_what_is_no_batch_is_refused_and_leaves_the_state_as_it_was(deployment, batch, message):
    adapter = fedade.Adapter(deployment)
    adapter(batches(1)[0])
    before = bits(adapter)
    with pytest.raises(FedadeError, match=message) as error:
        adapter(batch)
    assert "\n" not in str(error.value)
    assert same(bits(adapter), before)
    assert adapter.status.refused == 1
    assert adapter.status.reason == str(error.value)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("size", [40, 4])
def test_broken_rows_are_answered_by_the_class_frequencies_and_nothing_is_learned(deployment, value, size):
    adapter = fedade.Adapter(deployment)
    good = batches(1)[0]
    adapter(good)
    before, prior = bits(adapter), adapter.status.prior
    broken = good[:size].clone()
    broken[1, 0, 0, 0] = value
    answer = adapter(broken)
    rest = torch.arange(size) != 1
    torch.testing.assert_close(answer[1], prior)
    torch.testing.assert_close(answer[rest], adapter.predict(good[:size])[rest], atol=1e-5, rtol=1e-4)
    assert same(bits(adapter), before)
    assert adapter.status.refused == 1
    assert "1 of" in adapter.status.reason
    assert adapter(NAN).isfinite().all()
    assert same(bits(adapter), before)


@pytest.mark.parametrize("size", [40, 5])
def test_rows_on_which_every_model_overflows_are_answered_by_the_class_frequencies(deployment, size):
    adapter, usual = fedade.Adapter(deployment), batches(1)[0]
    adapter(usual)
    batch = usual[:size].clone()
    batch[1] = 3e38 * (batch[1] - batch[1].median()).sign()
    for answer in (adapter(batch), adapter.predict(batch)):
        assert torch.allclose(answer[1], adapter.status.prior)
        torch.testing.assert_close(answer.sum(-1), torch.ones(size))
        assert not torch.allclose(answer[0], answer[1])


def test_what_is_done_to_answers_and_status_does_not_reach_the_state(deployment):
    adapter = fedade.Adapter(deployment)
    answer = adapter(batches(1)[0])
    before = bits(adapter)
    adapter.status.prior.mul_(100)
    answer.zero_()
    assert same(bits(adapter), before)


def test_a_callers_autocast_changes_nothing(sample):
    usual, mixed = [], []
    for answers, enabled in ((usual, False), (mixed, True)):
        with torch.autocast("cpu", enabled=enabled):
            held_out = sample.inputs, labels_for(sample)
            deployment = fedade.deploy(sample.model, held_out)
            monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out)
            adapter = fedade.Adapter(deployment, monitor=monitor)
            answers += [adapter(batch) for batch in batches(3)] + [adapter.predict(batches(1)[0])]
            answers.append(torch.tensor(adapter.status.estimated_accuracy))
    assert all(torch.equal(one, other) for one, other in zip(usual, mixed, strict=True))


def test_predicting_learns_nothing(deployment):
    adapter = fedade.Adapter(deployment)
    first, second = batches(2)
    adapter(first)
    before, status = bits(adapter), adapter.status
    assert torch.equal(adapter.predict(second), adapter.predict(second))
    assert same(bits(adapter), before)
    assert adapter.status.samples == status.samples


def test_single_inputs_are_answered_at_once_and_learned_from_together(deployment):
    adapter, stream = fedade.Adapter(deployment), batches(1, 100)[0]
    for row in stream:
        assert adapter(row[None]).shape == (1, 4)
    status = adapter.status
    assert (status.batches, status.samples) == (100, 100)
    assert status.learned == 5, "after 8, 16, 32, 64 and 96 samples"
    assert status.waiting == 4
    assert status.prior is not None
    assert 0 <= status.s <= 1


def test_a_monitor_of_ones_own_is_asked_after_every_batch(deployment):
    class Watching:
        def begin(self, deployment):
            return torch.zeros(())

        def judge(self, ctx, memory, plan, probabilities, number):
            return memory + len(probabilities), Verdict(estimated_accuracy=0.5, alarm=number == 2)

    adapter = fedade.Adapter(deployment, monitor=Watching())
    for batch in batches(2):
        adapter(batch)
    assert adapter._memory.monitor == 80
    assert adapter.status.estimated_accuracy == 0.5
    assert adapter.status.alarm


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fed-ade-pluss", {}, "did you mean fed-ade-plus"),
        ("fed-ade-plus", {"forgeting": 1.0}, "did you mean forgetting"),
        ("fed-ade-plus", {"memory": -1.0}, "fed-ade-plus.memory: .*given: -1.0"),
        (Tent(), {"learning_rate": 1.0}, "has its settings already"),
        (Tent, {}, "method is the class Tent; pass its name, or an object"),
        ("source", {"pool": 0}, "pool is 0; it must be a whole number of at least 1"),
        ("source", {"rounds": "2"}, "rounds is '2'; it must be a whole number"),
        ("source", {"seed": -1}, "seed is -1; it must be a whole number of at least 0, below 2\\^63"),
        ("source", {"client": 2**70}, "client is .*; it must be"),
        ("source", {"monitor": True}, "monitor is a bool; pass an AccuracyMonitor"),
    ],
)
def test_wrong_methods_and_settings_are_refused_in_one_line(deployment, method, settings, message):
    with pytest.raises(FedadeError, match=message) as error:
        fedade.Adapter(deployment, method, **settings)
    assert "\n" not in str(error.value)


def test_a_model_that_was_not_deployed_is_refused(sample, deployment, tmp_path):
    with pytest.raises(FedadeError, match=r"is a \w+, no deployment; pass fedade.deploy\(model, held_out\)"):
        fedade.Adapter(sample.model)
    fedade.Adapter(deployment, seed=np.int64(3)).save(tmp_path / "adapter")
    with pytest.raises(FedadeError, match="no deployment"):
        fedade.Adapter.load(tmp_path / "adapter", sample.model)


def test_integers_are_taken_for_what_they_are():
    sample = made("bert")
    deployment = fedade.deploy(sample.model, (sample.inputs, labels_for(sample)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter = fedade.Adapter(deployment)
        assert torch.equal(adapter.predict(sample.inputs[:9].int()), adapter.predict(sample.inputs[:9]))
    with pytest.raises(FedadeError, match=r"torch\.float32"):
        adapter(sample.inputs[:9].float())


def test_threads_learn_one_after_the_other(deployment):
    adapter, given = fedade.Adapter(deployment), batches(1)[0]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: adapter(given), range(12)))
    assert adapter.status.learned == adapter.status.batches == 12
    alone = fedade.Adapter(deployment)
    expected = {tuple(alone(given).flatten().tolist()) for _ in range(12)}
    assert {tuple(answer.flatten().tolist()) for answer in answers} == expected


def pickled(adapter: fedade.Adapter) -> fedade.Adapter:
    return pickle.loads(pickle.dumps(adapter))  # noqa: S301 - what this test wrote itself


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_goes_on_with_the_same_bits_by_itself(deployment, copied):
    adapter, (first, second) = fedade.Adapter(deployment), batches(2)
    adapter(first)
    deployment.constant(lambda _: lambda: None)  # as some methods have: what cannot be pickled
    other = copied(adapter)
    answer = other(second)
    assert adapter.status.batches == 1
    assert torch.equal(adapter(second), answer)
