"""What an adapter with a monitor says of its own accuracy, and how it is kept."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedade


@pytest.fixture(scope="module")
def digits():
    """A network that knows digits, held-out data and a stream."""
    data = load_digits()
    inputs, labels = torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs, labels = inputs[order], labels[order]
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[:500]), labels[:500]).backward()
        optimiser.step()
    held_out = inputs[500:1100], labels[500:1100]
    return model.eval(), held_out, (inputs[1100:], labels[1100:])


def followed(adapter, inputs, labels, noise=0.0, size=50):
    """The accuracy of all answers, and the last status."""
    generator = torch.Generator().manual_seed(1)
    hits = []
    for first in range(0, len(labels) - size + 1, size):
        batch = inputs[first : first + size]
        batch = batch + noise * torch.randn(batch.shape, generator=generator)
        hits.append((adapter(batch).argmax(-1) == labels[first : first + size]).float())
    return float(torch.cat(hits).mean()), adapter.status


@pytest.mark.parametrize("method", ["source", "fed-ade-plus"])
def test_without_a_shift_the_estimate_is_near_the_truth_and_raises_no_alarm(digits, method):
    model, held_out, stream = digits
    deployment = fedade.deploy(model, held_out, progress=False)
    monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out, method)
    accuracy, status = followed(fedade.Adapter(deployment, method, monitor=monitor), *stream)
    low, high = status.accuracy_interval
    assert low <= status.estimated_accuracy <= high
    assert status.estimated_accuracy == pytest.approx(accuracy, abs=0.06)
    assert not status.alarm
    assert status.alarm_reason is None


@pytest.mark.parametrize("method", ["source", "fed-ade-plus"])
def test_a_model_that_gets_surer_as_noise_grows_is_not_believed(digits, method):
    model, held_out, stream = digits
    deployment = fedade.deploy(model, held_out, progress=False)
    monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out, method)
    accuracy, status = followed(fedade.Adapter(deployment, method, monitor=monitor), *stream, noise=0.5)
    assert accuracy < 0.6
    assert status.alarm
    assert status.accuracy_interval[0] <= accuracy
    assert status.estimated_accuracy < 0.75


def test_beyond_what_was_rehearsed_accuracy_cannot_be_told(digits):
    model, held_out, stream = digits
    deployment = fedade.deploy(model, held_out, progress=False)
    adapter = fedade.Adapter(
        deployment, "source", monitor=fedade.AccuracyMonitor.rehearsed(deployment, held_out, "source")
    )
    status = followed(adapter, stream[0] + 100, stream[1])[1]
    assert status.alarm
    assert "cannot be told" in status.alarm_reason
    assert status.accuracy_interval[0] == 0


def test_what_a_monitor_knows_is_stored_with_the_adapter(digits, tmp_path):
    model, held_out, (inputs, _) = digits
    deployment = fedade.deploy(model, held_out, progress=False)
    monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out)
    adapter = fedade.Adapter(deployment, monitor=monitor)
    adapter(inputs[:50])
    adapter.save(tmp_path / "adapter.safetensors")
    again = fedade.Adapter.load(tmp_path / "adapter.safetensors", deployment, monitor=monitor)
    assert again.status.accuracy_interval == adapter.status.accuracy_interval
    adapter(inputs[50:100])
    again(inputs[50:100])
    assert again.status.estimated_accuracy == adapter.status.estimated_accuracy
    with pytest.raises(
        fedade.FedadeError, match=r"adapter.safetensors was saved with a monitor; load it with the same"
    ):
        fedade.Adapter.load(tmp_path / "adapter.safetensors", deployment)
    fedade.Adapter(deployment).save(tmp_path / "plain.safetensors")
    with pytest.raises(fedade.FedadeError, match=r"plain.safetensors was saved without a monitor; load it without mon"):
        fedade.Adapter.load(tmp_path / "plain.safetensors", deployment, monitor=monitor)


def test_held_out_data_of_another_model_are_refused(digits):
    model, (inputs, labels), _ = digits
    deployment = fedade.deploy(model, (inputs, labels))
    with pytest.raises(fedade.FedadeError, match="held-out labels contain 10"):
        fedade.AccuracyMonitor.rehearsed(deployment, (inputs, labels + 1))
    with pytest.raises(fedade.FedadeError, match=r"held_out has shape \[600, 3\], expected \['n', 64\]"):
        fedade.AccuracyMonitor.rehearsed(deployment, (inputs[:, :3], labels))


def test_an_adapter_without_a_monitor_claims_nothing(digits):
    model, held_out, (inputs, _) = digits
    adapter = fedade.Adapter(fedade.deploy(model, held_out, progress=False))
    adapter(inputs[:50])
    assert adapter.status.estimated_accuracy is adapter.status.alarm is None


@pytest.mark.parametrize("sharpness", [0.25, 4.0])
@pytest.mark.parametrize("method", ["source", "fed-ade-plus"])
def test_answers_that_are_not_calibrated_are_judged_as_if_they_were(digits, method, sharpness):
    model, held_out, stream = digits
    scaled = copy.deepcopy(model)  # as trained with smoothed labels, or for too long
    for value in scaled[-1].parameters():
        value.data *= sharpness
    deployment = fedade.deploy(scaled, held_out, progress=False)
    monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out, method)
    accuracy, status = followed(fedade.Adapter(deployment, method, monitor=monitor), *stream)
    assert status.estimated_accuracy == pytest.approx(accuracy, abs=0.06)
    assert not status.alarm, status.alarm_reason
