"""A timestep of Fed-ADE+ on a GPU's kernels, interpreted, is that of plain PyTorch."""

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

import fedade
from fedade import kernels
from fedade.core.context import ClientContext
from fedade.kernels.native import chain
from fedade.methods.fed_ade_plus.class_moments import sample_spreads
from fedade.methods.fed_ade_plus.method import FedAdePlus, FedAdePlusClient


def normalised(channels: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def test_clients_observe_and_predict_as_plainly(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, method = torch.Generator().manual_seed(0), FedAdePlus()
    network = nn.Sequential(*normalised(3, 16), *normalised(16, 16), *normalised(16, 16, 2), nn.Flatten())
    network.append(nn.Linear(256, 3))
    reference = torch.rand(60, 3, 8, 8, generator=generator), torch.arange(60) % 3
    deployment = fedade.deploy(network, reference)
    assert len(sample_spreads(deployment)) == 3
    batches = torch.rand(2, 5, 3, 8, 8, generator=generator)
    batches[:, ::2] *= 0.3  # samples of one batch came under two conditions

    def timestep(inputs: Tensor) -> tuple[Tensor, FedAdePlusClient]:
        """What a client knows after a batch, and predicts of it without knowing any pass."""
        seen, anew = (ClientContext(deployment, inputs, torch.tensor(1), torch.tensor(5)) for _ in range(2))
        state, _ = method.observe(seen, method.begin(seen))
        return method.predict(anew, state), state

    with torch.no_grad():
        timestep(batches[0])  # measures the reference set
        plain = vmap(timestep)(batches)
        monkeypatch.setattr(kernels, "_runs_triton", lambda tensor: tensor.dtype is not torch.uint8)
        monkeypatch.setattr(chain, "suits", lambda *_: False)
        monkeypatch.setattr(chain, "suits_images", lambda *_: False)
        measured, measure = [], lanes.measured_convolution
        monkeypatch.setattr(lanes, "measured_convolution", lambda *given: measured.append(1) or measure(*given))
        fused = vmap(timestep)(batches)
    assert len(measured) == 9  # three layers in the two passes that observe, and in the one that predicts
    torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-3)
