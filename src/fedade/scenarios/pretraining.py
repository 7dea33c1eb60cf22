"""Training the model that is then deployed."""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core import storage
from fedade.core.errors import FedadeError, first_line
from fedade.core.network import HasBase, Network
from fedade.core.seeds import Seeds
from fedade.data.dataset import Labelled
from fedade.scenarios.settings import PretrainingSettings

TrainingProgress = Callable[[int, int], None]
"""Called with the epochs done and the epochs in all."""
CHECKPOINT_EPOCHS = 5
"""Between two checkpoints, or a tenth of the training where that is less."""
_MOMENTS = {"momentum_buffer": "momentum", "exp_avg": "mean", "exp_avg_sq": "square", "step": "step"}
"""What optimisers remember of each parameter, and how checkpoints call it."""


def pretrain(
    network: Network,
    data: Labelled,
    settings: PretrainingSettings,
    device: str,
    progress: TrainingProgress,
    checkpoint: Path | None = None,
) -> dict[str, Tensor]:
    """Weights and statistics after training; a checkpoint, where given, survives a kill and is continued from."""
    model = nn.Sequential(OrderedDict(body=network.body, head=network.head)).to(device).train()
    inputs, labels = torch.from_numpy(data.inputs[:]).to(device), torch.from_numpy(data.labels).to(device)
    steps = -(-len(labels) // settings.batch_size)
    optimiser: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, 0.9, weight_decay=settings.weight_decay, nesterov=True
    )
    if settings.optimiser == "adamw":
        optimiser = torch.optim.AdamW(model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        settings.learning_rate,
        total_steps=steps * settings.epochs,
        pct_start=0.5 if steps * settings.epochs == 4 else 0.25,  # of four steps the first has no rise to be part of
        cycle_momentum=False,
    )
    seeds = Seeds(settings.seed)
    between = max(1, min(CHECKPOINT_EPOCHS, settings.epochs // 10))
    begin = _restore(checkpoint, model, optimiser, schedule, steps)
    # Small operations of a deep network; statistics of batches, which recording would move once more, are elsewhere.
    gradients = Gradients(model, device, replayed=isinstance(network.body, HasBase))
    for epoch in range(begin, settings.epochs):
        generator = seeds.generator("pretraining", epoch=epoch)
        order = torch.from_numpy(generator.permutation(len(labels))).to(device)
        for rows in torch.split(order, settings.batch_size):
            if len(rows) == 1 and len(order) > 1:
                continue  # batch statistics of one sample have no variance
            batch = inputs[rows]
            if settings.augment:
                batch = flip_and_shift(batch, torch.from_numpy(generator.random((len(rows), 3))).to(device))
            gradients.of(batch, labels[rows])
            if settings.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
        progress(epoch + 1, settings.epochs)
        if checkpoint is not None and (epoch + 1) % between == 0:
            _save(checkpoint, model, optimiser, epoch + 1)
    model.eval()
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def flip_and_shift(images: Tensor, uniforms: Tensor) -> Tensor:
    """Each image flipped or not and moved by up to an eighth, the border mirrored; three uniform numbers each."""
    size = images.shape[-1]
    reach = size // 8
    padded = F.pad(images.float(), (reach,) * 4, mode="reflect")
    offsets = (uniforms[:, :2] * (2 * reach + 1)).long().clamp(max=2 * reach)
    span = torch.arange(size, device=images.device)
    columns = torch.where(uniforms[:, 2:] < 0.5, span, span.flip(0))
    rows = (offsets[:, :1] + span)[:, None, :, None]
    columns = (offsets[:, 1:] + columns)[:, None, None, :]
    everyone = torch.arange(len(images), device=images.device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[everyone, channels, rows, columns]


def _save(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, epoch: int) -> None:
    moments = {
        f"{_MOMENTS[kind]}/{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimiser.state[parameter].items()
    }
    weights = {f"weights/{name}": value for name, value in model.state_dict().items()}
    storage.save_tensors(path, weights | moments, {"epoch": str(epoch)})


def _restore(
    path: Path | None,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    steps: int,
) -> int:
    """Epochs that are done already."""
    if path is None or not path.exists():
        return 0
    tensors, metadata = storage.load_tensors(path)
    try:
        model.load_state_dict({name: tensors[f"weights/{name}"] for name in model.state_dict()})
        kinds = ("exp_avg", "exp_avg_sq", "step") if isinstance(optimiser, torch.optim.AdamW) else ("momentum_buffer",)
        for name, parameter in model.named_parameters():
            for kind in kinds:
                value = tensors[f"{_MOMENTS[kind]}/{name}"]
                # The number of steps is read by the host.
                optimiser.state[parameter][kind] = value if kind == "step" else value.to(parameter.device)
    except (KeyError, RuntimeError) as error:
        raise FedadeError(f"{path} belongs to another network; delete it to train from the start") from error
    epoch = int(metadata["epoch"])
    schedule.last_epoch = epoch * steps - 1
    with torch.no_grad():
        optimiser.step()  # without gradients: tells the schedule that it follows an optimiser
    schedule.step()
    return epoch


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    labels: Tensor
    gradients: list[Tensor | None]


@dataclass
class Gradients:
    """Leaves the gradients of the mean cross-entropy of a batch in the model's parameters."""

    model: nn.Module
    device: str
    replayed: bool = False
    """On a GPU: record the operations of a batch once per shape and replay them, where launching them takes longer than
    computing them. The model must not change but by its parameters: recording passes one batch twice."""
    recorded: dict[torch.Size, _Recorded] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.replayed &= self.device.startswith("cuda")

    def of(self, inputs: Tensor, labels: Tensor) -> None:
        """Compute them; gradients that were there before are gone."""
        if self.replayed and inputs.shape not in self.recorded:
            self._record(inputs.clone(), labels.clone())
        known = self.recorded.get(inputs.shape)
        if known is None:
            self._compute(inputs, labels)
            return
        known.inputs.copy_(inputs)
        known.labels.copy_(labels)
        known.graph.replay()
        for parameter, gradient in zip(self.model.parameters(), known.gradients, strict=True):
            parameter.grad = gradient

    def _compute(self, inputs: Tensor, labels: Tensor) -> None:
        self.model.zero_grad(set_to_none=True)
        mixed = torch.autocast(self.device.split(":")[0], dtype=torch.bfloat16, enabled=self.device.startswith("cuda"))
        with mixed:
            loss = F.cross_entropy(self.model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]

    def _record(self, inputs: Tensor, labels: Tensor) -> None:
        # Once on another stream first: what libraries set up at their first call must not be recorded.
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._compute(inputs, labels)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._compute(inputs, labels)
        except RuntimeError as error:
            self.replayed = False
            warnings.warn(
                f"training runs without a CUDA graph, and slower: {first_line(error)}", RuntimeWarning, stacklevel=2
            )
            return
        gradients = [parameter.grad for parameter in self.model.parameters()]
        self.recorded[inputs.shape] = _Recorded(graph, inputs, labels, gradients)
