"""A network that was brought: an adapter, one client after the other, is the simulator with all of them at once."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from speed.networks import CifarResNet
from torch import Tensor, nn

import fedade
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.methods import METHODS

from ..helpers import clock
from .networks import made

DATA = Path(os.environ.get("FEDADE_DATA", "data"))
CLIENTS, BATCH = 3, 50


class DriftingImages:
    """Images whose contrast is lost and whose first classes become more frequent, at another pace by client."""

    num_clients = CLIENTS

    def __init__(self, images: Tensor, labels: Tensor, num_timesteps: int) -> None:
        self.images, self.labels, self.num_timesteps = images, labels, num_timesteps

    def draw(self, clients, timestep: int, purpose: str = "stream") -> Batch:
        batches = [self._batch(int(client), timestep, purpose) for client in clients]
        return Batch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))

    def _batch(self, client: int, timestep: int, purpose: str) -> tuple[Tensor, ...]:
        shift = timestep / self.num_timesteps * (client + 1) / CLIENTS
        frequent = torch.tensor((1 - shift) ** np.arange(10) + 0.01)
        generator = torch.Generator().manual_seed(Seeds(7).number(purpose, client=client, timestep=timestep) % 2**31)
        rows = torch.multinomial(
            (frequent / torch.bincount(self.labels, minlength=10))[self.labels], BATCH, True, generator=generator
        )
        images = self.images[rows]
        centre = images.mean((1, 2, 3), keepdim=True)
        return (
            centre + (1 - 0.8 * shift) * (images - centre),
            self.labels[rows],
            frequent / frequent.sum(),
            torch.tensor(shift),
        )


def agree(model: nn.Module, images: Tensor, labels: Tensor, timesteps: int) -> None:
    held_out = torch.arange(len(labels)) % 3 == 0
    deployment = fedade.deploy(model, (images[held_out], labels[held_out]), progress=False)
    streams, method = DriftingImages(images[~held_out], labels[~held_out], timesteps), METHODS["fed-ade-plus"]()
    running = clock(method, Scenario(deployment, streams), rounds=1, participation=1.0)
    simulated = np.stack([rows["accuracy_post"] for rows in running.run(running.beginning())])
    alone = np.zeros_like(simulated)
    for client in range(CLIENTS):
        adapter = fedade.Adapter(deployment, client=client)
        for timestep in range(1, timesteps + 1):
            batch = streams.draw(np.array([client]), timestep)
            hits = adapter(batch.inputs[0]).argmax(-1) == batch.labels[0]
            alone[timestep - 1, client] = hits.double().mean()
        assert adapter.status.rolled_back == 0
    # Mapped over clients a convolution rounds differently, which may turn a tie.
    np.testing.assert_allclose(alone, simulated, atol=1.01 / BATCH)
    assert abs(alone.mean() - simulated.mean()) < 0.002


def test_an_adapter_is_the_simulator_on_a_network_of_the_published_shape():
    sample = made("resnet-20")
    generator = torch.Generator().manual_seed(0)
    agree(sample.model, torch.rand(160, 3, 8, 8, generator=generator), torch.arange(160) % 10, timesteps=2)


@pytest.mark.slow
def test_an_adapter_is_the_simulator_on_the_published_network():
    weights, parquet = DATA / "models/cifar10-resnet20.safetensors", DATA / "cifar10/plain_text"
    if not weights.is_file() or not parquet.is_dir():
        pytest.skip("published weights or CIFAR-10 are not on this machine")
    import pyarrow.parquet as pq
    from PIL import Image
    from safetensors.torch import load_file

    table = pq.read_table(parquet / "test-00000-of-00001.parquet").slice(0, 2000).to_pydict()
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(image["bytes"]))) for image in table["img"]])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    mean, deviation = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    model = CifarResNet()
    model.load_state_dict(load_file(weights))
    agree(model, (images - mean[:, None, None]) / deviation[:, None, None], torch.tensor(table["label"]), timesteps=5)
