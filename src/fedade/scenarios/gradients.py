"""Gradients of a model's loss on one batch after the other."""

import warnings
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core.errors import first_line


@dataclass(frozen=True)
class _Recorded:
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
