"""Drift made from held-out labelled data alone: what a method's confidence is worth once inputs and classes move.

A method is run on short streams of the held-out data, disturbed in ways that any sensor knows (noise, less contrast,
blur, brightness). What it predicted and what was right calibrate the monitor. Mixing classes anew as well taught it
nothing more in a trial.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.adapter.appearance import HeldOutAppearance
from fedade.core.context import context_before_first_batch
from fedade.core.method import ClientContext, Deployment, Method
from fedade.core.seeds import Seeds
from fedade.data.disturbances import disturbed

DISTURBANCES: Sequence[tuple[str, float]] = (
    ("none", 0.0), ("noise", 0.1), ("blur", 1), ("contrast", 0.5), ("noise", 0.2), ("brightness", 0.5), ("blur", 2),
    ("noise", 0.3), ("none", 0.0), ("contrast", 0.7), ("noise", 0.4), ("blur", 3), ("contrast", 0.85), ("noise", 0.5),
    ("brightness", 1.0), ("noise", 0.6),
)  # fmt: skip
"""Kinds and strengths; noise and brightness in standard deviations of the inputs, contrast as the share lost."""
NOISE_SCALES = (1, 2, 4, 8)
"""By which the noise is made stronger until it hurts: a network of few inputs stands much more than one of pixels."""
BATCHES, SIZE = 5, 50
"""Batches of a stream, and samples of each."""
TRIED = 200
"""Held-out samples that the strength of the noise is found with."""


class Rehearsal(NamedTuple):
    """What a method predicted on simulated streams. Axes: T batches, n samples, K classes."""

    probabilities: Tensor  # [T, n, K]
    labels: Tensor  # [T, n]
    prior: Tensor
    """`[T, K]`: class frequencies that predictions were corrected for; the deployed mean prediction where none were."""
    disturbance: Tensor
    """`[T]`: whole numbers, the same for batches of one disturbance."""
    appearance: Tensor
    """`[T, 2, D]`: moments of the disturbed inputs."""


def rehearse(
    method: Method, deployment: Deployment, inputs: Tensor, labels: Tensor, seen: HeldOutAppearance
) -> Rehearsal:
    """A short stream for every disturbance, with classes as frequent as they were held out. Costs 16 streams of
    5 calls. `inputs` should not be those that the method's statistics came from."""
    scale = noise_scale(deployment, inputs, labels)
    rows: list[tuple[Tensor, ...]] = []
    for number, (kind, strength) in enumerate(DISTURBANCES):
        scaled = strength * scale if kind == "noise" else strength
        rows += _followed(method, deployment, seen, _stream(inputs, labels, kind, scaled, number))
    numbers = torch.arange(len(DISTURBANCES)).repeat_interleave(BATCHES)
    probabilities, hidden, prior, appearance = (torch.stack(column) for column in zip(*rows, strict=True))
    return Rehearsal(probabilities, hidden, prior, numbers, appearance)


@torch.no_grad()
def noise_scale(deployment: Deployment, inputs: Tensor, labels: Tensor) -> int:
    """How much stronger noise must be for the deployed model to lose half of what it knows beyond guessing."""
    strongest = max(strength for kind, strength in DISTURBANCES if kind == "noise")
    inputs, labels = inputs[:TRIED], labels[:TRIED]

    def right(strength: float) -> float:
        logits = deployment.network.logits(deployment.parameters, disturbed(inputs, "noise", strength, 0))
        return float((logits.argmax(-1) == labels).float().mean())

    enough = (right(0.0) + 1 / deployment.num_classes) / 2
    hurting = (scale for scale in NOISE_SCALES if right(scale * strongest) <= enough)
    return next(hurting, NOISE_SCALES[-1])


def _stream(inputs: Tensor, labels: Tensor, kind: str, strength: float, number: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = Seeds(0).generator("rehearsal", client=number)
    for step in range(BATCHES):
        rows = torch.from_numpy(generator.integers(len(labels), size=SIZE)).to(labels.device)
        yield disturbed(inputs[rows], kind, strength, 1000 * number + step), labels[rows]


def _followed(
    method: Method, deployment: Deployment, seen: HeldOutAppearance, stream: Iterator[tuple[Tensor, Tensor]]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    state = method.begin(context_before_first_batch(deployment))
    for step, (inputs, labels) in enumerate(stream, 1):
        number = torch.tensor(step, device=inputs.device)
        ctx = ClientContext(deployment, inputs, number, number)
        with torch.no_grad():
            state, plan = method.observe(ctx, state)
            probabilities = method.predict(ctx.after_observing(), state)
        yield probabilities, labels, plan.get("prior", deployment.mean_prediction), seen.moments(inputs)
