"""Streams of a public CIFAR-10 ResNet-20, adapted and not, for `accuracy_estimators.py`: labels kept, passes stored.

python research/accuracy_streams.py --models DIR --data-dir DIR --out DIR

Held out is every fourth test image; streams draw from the rest. Estimators were chosen on streams named `tune`, and
scored on streams named `score`, which have other seeds and other corruptions, while the monitor was made. Streams named
`fresh` have seeds and corruptions that nothing was chosen on: they are scored when it is done. The width of the
interval was chosen later, on streams named `validation`, and scored on those named `interval`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PrivateAttr
from safetensors.torch import load_file
from torch import Tensor, nn

from fedade.adapter.appearance import HeldOutAppearance
from fedade.adapter.simulated_drift import rehearse
from fedade.core.context import ClientContext, context_before_first_batch
from fedade.core.deployment import Deployment, Reference
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.data.corruptions.registry import MAX_SEVERITY, corrupt
from fedade.data.registry import load
from fedade.maths.priors.estimators import confusion_matrix
from fedade.maths.priors.reweighting import apply_temperature, fit_temperature, reweight
from fedade.maths.shift_weights import weights
from fedade.maths.signals.dynamics import mean_feature
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.source import Source
from fedade.models import build
from fedade.models.image import Pixels

BATCH, CLASSES, REFERENCE, CLEAN = 50, 10, 1000, 8
TUNED = ("gaussian_noise", "defocus_blur", "contrast", "fog", "jpeg_compression")
SCORED = (
    "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow",
    "frost", "brightness", "pixelate", "elastic_transform", "saturate",
)  # fmt: skip
FRESH = ("zoom_blur", "speckle_noise", "gaussian_blur", "spatter")
FRESH_PAIRS = ("speckle_noise+gaussian_blur", "zoom_blur+spatter", "spatter+speckle_noise")
"""Two corruptions, one after the other: few alone cost an adapted client 10 points."""
VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
OTHERS = (*(name for name in SCORED if name not in VALIDATION), "zoom_blur")
SPLITS = ("tune", "validation", "interval", "fresh", "score")


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters (He et al., 2016, option A)."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.padding = stride, (width - before) // 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Features of the next layer."""
        hidden = self.bn2(self.conv2(self.bn1(self.conv1(inputs)).relu()))
        shortcut = inputs[:, :, :: self.stride, :: self.stride]
        return torch.relu(hidden + nn.functional.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding)))


class ResNet20(nn.Module):
    """He et al.'s ResNet-20 for CIFAR-10."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits."""
        hidden = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(inputs)).relu())))
        return self.linear(hidden.mean((2, 3)))


@dataclass(frozen=True)
class Stream:
    """One client's stream."""

    split: str
    kind: str
    schedule: str
    seed: int
    corruption: str
    batches: int

    @property
    def name(self) -> str:
        return f"{self.split}.{self.kind}.{self.schedule}.{self.seed}.{self.corruption}"


def streams() -> Iterator[Stream]:
    """All streams; `onset` is clean for eight batches and then corrupted at one severity, its schedule."""
    for rank, seed in enumerate(range(100, 105)):
        schedule = ("lin", "squ")[rank % 2]
        yield from (Stream("tune", kind, schedule, seed, TUNED[rank], 20) for kind in ("covariate", "both", "label"))
        yield Stream("tune", "onset", str((3, 5)[rank % 2]), seed, TUNED[rank], 13)
        yield Stream("tune", "none", "lin", seed, TUNED[rank], 20)
    for seed in range(5):
        for number, schedule in enumerate(("lin", "squ")):
            corruption = SCORED[seed + 5 * number]
            yield Stream("score", "onset", "5", seed, corruption, 13)
            if seed < 3:
                kinds = ("covariate", "both", "label")
                yield from (Stream("score", kind, schedule, seed, corruption, 20) for kind in kinds)
                yield Stream("score", "none", "lin", 10 * number + seed, corruption, 50)
    yield from _fresh()
    yield from _of_intervals("validation", VALIDATION, range(300, 324))
    yield from _of_intervals("interval", OTHERS, range(400, 420))


def _of_intervals(split: str, corruptions: tuple[str, ...], seeds: range) -> Iterator[Stream]:
    """Many windows of each kind: how often an interval holds is a share of them."""
    for number, seed in enumerate(seeds):
        corruption = corruptions[number // 2 % len(corruptions)]
        schedule = ("lin", "squ")[number % 2]
        yield from (Stream(split, kind, schedule, seed, corruption, 20) for kind in ("covariate", "both"))
        if number < 10:
            yield Stream(split, "label", schedule, seed, corruption, 20)
        if number < 3:
            yield Stream(split, "none", "lin", seed, corruption, 50)


def _fresh() -> Iterator[Stream]:
    for number, corruption in enumerate(FRESH):
        for schedule in ("lin", "squ"):
            seed = 200 + 2 * number + (schedule == "squ")
            yield from (
                Stream("fresh", kind, schedule, seed, corruption, 20) for kind in ("covariate", "both", "label")
            )
    for corruption in (*FRESH_PAIRS, *FRESH):
        yield from (Stream("fresh", "onset", "5", seed, corruption, 13) for seed in range(220, 224))
    yield from (Stream("fresh", "none", "lin", seed, FRESH[0], 100) for seed in range(230, 240))


@dataclass(frozen=True)
class Images:
    """Test images `[N, H, W, 3]` and labels, of the two parts."""

    held_out: tuple[Any, Any]
    streamed: tuple[Any, Any]


def images(data_dir: Path) -> Images:
    """Every fourth test image is held out."""
    test = load("cifar10", data_dir).test
    pixels = np.ascontiguousarray(np.moveaxis(np.array(test.inputs[:]), 1, -1))
    held = np.arange(len(pixels)) % 4 == 0
    return Images((pixels[held], test.labels[held]), (pixels[~held], test.labels[~held]))


def as_inputs(pixels: Any) -> Tensor:
    """uint8 `[n, 3, H, W]`."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 1)))


def deployed(models: Path, held_out: tuple[Any, Any]) -> tuple[Deployment, Tensor]:
    """The deployment of the published weights, and the logits of the held-out images."""
    network = build(
        f"import:{__name__}:ResNet20", (3, 32, 32), CLASSES, Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), 0
    )
    stored = load_file(models / "cifar10-resnet20.safetensors")
    names = {name: name.removeprefix("body.1.").replace("head.", "linear.") for name in network.initial_parameters()}
    parameters = {name: stored[found] for name, found in names.items() if found in stored}
    assert set(parameters) == set(names), set(names) - set(parameters)
    inputs, labels = as_inputs(held_out[0]), torch.from_numpy(held_out[1]).long()
    features = torch.cat([network.represent(parameters, part) for part in inputs.split(250)])
    logits = network.classify(parameters, features)
    temperature = fit_temperature(logits, labels)
    probabilities = apply_temperature(logits, temperature).softmax(-1)
    return Deployment(
        network=network,
        split=Split("head"),
        parameters=parameters,
        reference=Reference(inputs[:REFERENCE], labels[:REFERENCE]),
        confusion=confusion_matrix(probabilities, labels),
        source_prior=torch.full((CLASSES,), 1 / CLASSES),
        mean_prediction=probabilities.mean(0),
        initial_feature=mean_feature(features[:REFERENCE]),
        temperature=temperature,
        accuracy=(logits.argmax(-1) == labels).float().mean(),
    ), logits


def batches(stream: Stream, pool: tuple[Any, Any]) -> Iterator[tuple[Tensor, Any, Any]]:
    """Inputs and labels of every timestep, and their rows of the pool where they are clean."""
    seeds = Seeds(stream.seed)
    target = seeds.generator("target").dirichlet(np.full(CLASSES, 0.1))
    onset = stream.kind == "onset"
    shifts = weights("lin" if onset else stream.schedule, stream.batches, torch.zeros(stream.batches))[1:].tolist()
    by_class = [np.flatnonzero(pool[1] == label) for label in range(CLASSES)]
    for step, shift in enumerate(shifts):
        draw = seeds.generator("stream", timestep=step)
        far = shift * (stream.kind in ("label", "both"))
        labels = draw.choice(CLASSES, BATCH, p=(1 - far) / CLASSES + far * target)
        rows = np.array([draw.choice(by_class[label]) for label in labels])
        severity = round(MAX_SEVERITY * shift) if stream.kind in ("covariate", "both") else 0
        if onset and step >= CLEAN:
            severity = int(stream.schedule)
        yield (
            as_inputs(corrupted(pool[0][rows], stream.corruption, severity, stream.seed)),
            labels,
            None if severity else rows,
        )


def corrupted(pixels: Any, names: str, severity: int, seed: int) -> Any:
    """Images after one corruption, or several joined by `+`, in their order."""
    for name in names.split("+"):
        pixels = corrupt(pixels, name, severity, seed)
    return pixels


class Remembering(FedAdePlus):
    """`fed-ade-plus`, which predicts with the logits that `observe` ended with: the same numbers, a pass less."""

    _logits: list[Tensor] = PrivateAttr(default_factory=list)

    def _settle(self, *args: Any) -> Any:
        corrected, reading = super()._settle(*args)
        self._logits[:] = [corrected.logits]
        return corrected, reading

    def predict(self, ctx: ClientContext, state: Any) -> Tensor:
        """As `FedAdePlus.predict`."""
        probabilities = apply_temperature(self._logits[0], ctx.deployment.temperature).softmax(-1)
        return reweight(probabilities, state.prior, ctx.deployment.mean_prediction)


def followed(
    deployment: Deployment, seen: HeldOutAppearance, given: Iterator[tuple[Tensor, Any, Any]], clean: Tensor
) -> dict[str, Any]:
    """What a client and the unadapted model predict, batch by batch, `[T, n, K]`, with plans and labels."""
    method = Remembering()
    state = method.begin(context_before_first_batch(deployment))
    answers = []
    for step, (inputs, labels, rows) in enumerate(given, 1):
        ctx = ClientContext(deployment, inputs, torch.tensor(step), torch.tensor(step))
        state, plan = method.observe(ctx, state)
        adapted = method.predict(ctx, state)
        logits = deployment.network.logits(deployment.parameters, inputs) if rows is None else clean[rows]
        plain = apply_temperature(logits, deployment.temperature).softmax(-1)
        hidden = {"labels": torch.as_tensor(labels), "appearance": seen.moments(inputs)}
        answers.append({"adapted": adapted, "plain": plain, **hidden, **plan})
    return {name: torch.stack([one[name] for one in answers]).numpy() for name in answers[0]}


def main() -> None:
    """Store every stream that is not there yet."""
    words = argparse.ArgumentParser()
    words.add_argument("--models", type=Path, required=True)
    words.add_argument("--data-dir", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--split", choices=SPLITS, help="only these streams")
    said = words.parse_args()
    torch.set_num_threads(1)
    said.out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        pools = images(said.data_dir)
        deployment, logits = deployed(said.models, pools.held_out)
        known = torch.from_numpy(pools.held_out[1]).long()
        seen = HeldOutAppearance.fit(as_inputs(pools.held_out[0]), known, CLASSES)
        looks = seen.looks(as_inputs(pools.held_out[0]))
        parts = {name: part.numpy() for name, part in (*seen._asdict().items(), ("looks", looks))}
        np.savez(said.out / "held-out.npz", logits=logits.numpy(), labels=pools.held_out[1], **parts)
        if not (said.out / "rehearsal.npz").exists():
            spare = slice(REFERENCE, None)
            inputs, labels = as_inputs(pools.held_out[0][spare]), torch.from_numpy(pools.held_out[1][spare]).long()
            for name, method in (("rehearsal", Remembering()), ("rehearsal-plain", Source())):
                rehearsal = rehearse(method, deployment, inputs, labels, seen)
                np.savez(said.out / f"{name}.npz", **{part: one.numpy() for part, one in rehearsal._asdict().items()})
        pixels = as_inputs(pools.streamed[0]).split(250)
        clean = torch.cat([deployment.network.logits(deployment.parameters, part) for part in pixels])
        for stream in streams():
            path = said.out / f"{stream.name}.npz"
            if said.split in (None, stream.split) and not path.exists():
                np.savez(path, **followed(deployment, seen, batches(stream, pools.streamed), clean))
                print(stream.name, flush=True)


if __name__ == "__main__":
    main()
