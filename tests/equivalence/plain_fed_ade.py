"""Fed-ADE as a plain loop, from the paper's equations and the decision records: nothing of the package is used.

Names of equations are the paper's labels; numbers are those of docs/decisions.
"""

from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

Parameters = dict[str, Tensor]
RIDGE = 1e-3


class Labelled(NamedTuple):
    """A client's (x⁰, y⁰)."""

    inputs: Tensor
    labels: Tensor


class Measured(NamedTuple):
    """What the server measured of the deployed model: M, μ0 and the temperature."""

    confusion: Tensor
    source_prior: Tensor
    temperature: Tensor


class Settings(NamedTuple):
    """η_min, η_max, and the epochs and minibatches of a round."""

    low: float
    high: float
    joint_epochs: int
    personal_epochs: int
    batch_size: int


class PlainClient:
    """One client: its labelled data, its φ, and its last summaries q and z (0004: uniform, and those of its data)."""

    def __init__(self, deployed: Parameters, labelled: Labelled) -> None:
        self.labelled = labelled
        self.personal = {name: value.clone() for name, value in deployed.items() if name.startswith("head.")}
        self.q = torch.full((len(deployed["head.bias"]),), 1 / len(deployed["head.bias"])).double()
        self.z = F.normalize(represent(deployed, labelled.inputs), dim=-1).mean(0)

    def observe(self, model: Parameters, inputs: Tensor, settings: Settings) -> None:
        """eq:batch_q, eq:z_mean, eq:S_lab, eq:S_rep, eq:S_combined and eq:eta_map."""
        features = represent(model, inputs)
        q = classify(model, features).softmax(-1).mean(0)
        z = F.normalize(features, dim=-1).mean(0)
        self.s_unc = 1 - F.cosine_similarity(self.q, q, dim=0)
        self.s_rep = (1 - F.cosine_similarity(self.z, z, dim=0)) / 2
        self.rate = settings.low + (settings.high - settings.low) * (self.s_unc + self.s_rep) / 2
        self.q, self.z = q, z

    def risk(self, model: Parameters, rows: Tensor) -> Tensor:
        """F̂ (eq:estimated_risk) on some rows; classes are counted over all of the client's data (0011)."""
        inputs, labels = self.labelled
        counts = torch.bincount(labels, minlength=len(self.prior))
        weights = self.prior[labels[rows]] * len(labels) / counts[labels[rows]]
        logits = classify(model, represent(model, inputs[rows]))
        return (weights * F.cross_entropy(logits, labels[rows], reduction="none")).mean()

    def descend(self, model: Parameters, moving: list[str], key: int, epochs: range, batch_size: int) -> Parameters:
        """SGD on the named tensors: eq:local_joint_update on all, eq:local_personal_update on φ."""
        model = {name: value.detach().clone().requires_grad_(name in moving) for name, value in model.items()}
        descent = torch.optim.SGD([model[name] for name in moving], float(self.rate))
        size = len(self.labelled.labels)
        for epoch in epochs:
            for rows in shuffled(key, size, epoch).split(batch_size) if batch_size < size else [torch.arange(size)]:
                descent.zero_grad()
                self.risk(model, rows).backward()
                descent.step()
        return {name: value.detach() for name, value in model.items()}


class PlainFedAde:
    """The server with its clients: Algorithm 1, in the order of 0004."""

    def __init__(self, deployed: Parameters, measured: Measured, labelled: list[Labelled], settings: Settings) -> None:
        self.deployed, self.measured, self.settings = deployed, measured, settings
        self.clients = [PlainClient(deployed, own) for own in labelled]
        self.shared_names = [name for name in deployed if name.startswith("body.") and "running" not in name]
        self.shared = {name: deployed[name] for name in self.shared_names}

    def timestep(self, batches: list[Tensor], rounds: list[list[int]], keys: list[dict[int, int]]) -> None:
        """One batch of every client, then the rounds of these participants, whose orders come from these keys."""
        for client, inputs in zip(self.clients, batches, strict=True):
            client.observe(self.model(client), inputs, self.settings)
            outputs = classify(self.deployed, represent(self.deployed, inputs)) / self.measured.temperature
            client.prior = label_prior(self.measured, outputs.softmax(-1).mean(0))
        _, _, joint, personal, batch_size = self.settings
        for participants, key in zip(rounds, keys, strict=True):
            sent, sizes = [], [len(batches[number]) for number in participants]
            for number in participants:
                client = self.clients[number]
                moving = [*self.shared_names, *client.personal]
                moved = client.descend(self.model(client), moving, key[number], range(joint), batch_size)
                client.personal = {name: moved[name] for name in client.personal}
                sent.append(moved)
            self.shared = {  # eq:aggregate
                name: sum(size * own[name] for size, own in zip(sizes, sent, strict=True)) / sum(sizes)
                for name in self.shared
            }
            for number in participants:
                client, epochs = self.clients[number], range(joint, joint + personal)
                moved = client.descend(self.model(client), list(client.personal), key[number], epochs, batch_size)
                client.personal = {name: moved[name] for name in client.personal}

    def model(self, client: PlainClient) -> Parameters:
        """θ_c = {ψ̄, φ_c}; statistics of normalisation layers stay as deployed (0003)."""
        return {**self.deployed, **self.shared, **client.personal}

    def predict(self, number: int, inputs: Tensor) -> Tensor:
        """H({ψ̄, φ}; x)."""
        model = self.model(self.clients[number])
        return classify(model, represent(model, inputs)).softmax(-1)


def label_prior(measured: Measured, predicted: Tensor) -> Tensor:
    """argmin over the simplex of ‖Mq − b‖² + 0.001 ‖q − μ0‖² (0006), exactly: the best of all supports.

    On a given support the minimum solves a linear system (Lagrange); the best of those that are distributions is it.
    """
    confusion, source, _ = measured
    classes = len(source)
    hessian = confusion.T @ confusion + RIDGE * torch.eye(classes).double()
    linear = confusion.T @ predicted + RIDGE * source
    supports = torch.tensor(list(product([0.0, 1.0], repeat=classes))[1:]).double()
    systems = torch.zeros(len(supports), classes + 1, classes + 1).double()
    systems[:, :-1, :-1] = supports[:, :, None] * hessian * supports[:, None] + torch.diag_embed(1 - supports)
    systems[:, :-1, -1] = systems[:, -1, :-1] = supports
    targets = torch.cat([supports * linear, torch.ones(len(supports), 1).double()], 1)
    candidates = torch.linalg.solve(systems, targets)[:, :-1]
    values = ((candidates @ hessian) * candidates).sum(-1) / 2 - candidates @ linear
    values[(candidates < 0).any(-1)] = torch.inf
    return candidates[values.argmin()]


def represent(model: Parameters, pixels: Tensor) -> Tensor:
    """h_ψ(x) of `small-cnn`: a stem, a residual block and 2x2 pooling."""

    def layer(images: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        weight = model[f"body.1.{convolution}.weight"]
        convolved = F.conv2d(images, weight, None, stride, weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            model[f"body.1.{norm}.{name}"][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
        )
        return (convolved - mean) / (variance + 1e-5).sqrt() * scale + shift

    stem = layer((pixels - model["pixels.mean"]) / model["pixels.deviation"], "0", "1", 2).relu()
    hidden = layer(stem, "3.conv1", "3.norm1", 2).relu()
    block = (layer(hidden, "3.conv2", "3.norm2", 1) + layer(stem, "3.shortcut.0", "3.shortcut.1", 2)).relu()
    return F.adaptive_avg_pool2d(block, 2).flatten(1)


def classify(model: Parameters, features: Tensor) -> Tensor:
    """Logits of the head."""
    return F.linear(features, model["head.weight"], model["head.bias"])


def shuffled(key: int, size: int, epoch: int) -> Tensor:
    """The order of an epoch: sorted hashes of key, epoch and position (MurmurHash3's finaliser, in whole numbers)."""

    def finalise(value: int) -> int:
        value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return value ^ value >> 16

    mixed = finalise(key + 0x9E3779B9 * (epoch + 1) & 0xFFFFFFFF)
    hashes = [finalise(finalise(place * 0x85EBCA77 + mixed & 0xFFFFFFFF) + mixed & 0xFFFFFFFF) for place in range(size)]
    return torch.tensor(sorted(range(size), key=lambda place: hashes[place] >> 8))
