"""The same work as a good engineer writes it with `torch.func`: a round's participants side by side, in one program.

No kernel of ours, no graph that is replayed: `vmap` over stacked parameters, `grad`, one pass for both signals, the
features of the frozen body once for all personal steps, and `torch.compile` over each of these where it is asked for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedade.core.precision import Precision
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.speed.plain_loop import TimestepLoop, entropy, first_summaries, learning_rate, plain_model, summaries
from fedade.speed.workload import Work

Stacked = dict[str, Tensor]


class StackedLoop(TimestepLoop):
    """Parameters of all clients stacked, and two nested loops: timesteps, rounds."""

    def __init__(
        self, work: Work, scenario: Scenario, seeds: Seeds, precision: Precision = "float32", compiled: bool = False
    ) -> None:
        super().__init__(work, scenario, seeds)
        self.precision = precision
        model = plain_model(scenario.deployment)
        self.body, self.head = model.body, model.head
        self.fixed = dict(self.body.named_buffers())
        self.shared, own = (dict(part.requires_grad_(False).named_parameters()) for part in (self.body, self.head))
        self.own = {name: value.repeat(work.clients, *[1] * value.ndim) for name, value in own.items()}
        self.previous = tuple(value.repeat(work.clients, 1) for value in first_summaries(scenario.deployment))
        """Of every client's last participation."""
        self.rates = self.previous[0].new_zeros(work.clients)

        def program(function: Callable[..., Any], *dims: int | None) -> Callable[..., Any]:
            mapped = vmap(function, dims)
            return torch.compile(mapped, dynamic=False) if compiled else mapped

        self._observe = program(self._observed, None, 0, 0, 0)
        self._joint = program(self._jointly, None, 0, 0, 0)
        self._personal = program(self._personally, None, 0, 0, 0)
        self._answer = program(self._logits, None, 0, 0)

    @torch.no_grad()
    def round(self, batch: Batch, timestep: int, number: int) -> None:
        drawn = self.work.exchange_rounds.participants(self.seeds, self.work.clients, timestep)[number]
        chosen = torch.as_tensor(drawn, device=self.rates.device)
        inputs = batch.inputs[chosen]
        own = {name: value[chosen] for name, value in self.own.items()}
        rates, found = self._observe(self.shared, own, inputs, tuple(value[chosen] for value in self.previous))
        self.rates[chosen] = rates
        for kept, summary in zip(self.previous, found, strict=True):
            kept[chosen] = summary
        shared, own = self._joint(self.shared, own, inputs, rates)
        self.shared = {name: value.mean(0) for name, value in shared.items()}
        for name, value in self._personal(self.shared, own, inputs, rates).items():
            self.own[name][chosen] = value

    @torch.no_grad()
    def score(self, batch: Batch) -> NDArray[np.float64]:
        logits = self._answer(self.shared, self.own, batch.inputs)
        hits: NDArray[np.float64] = (logits.argmax(-1) == batch.labels).double().mean(-1).cpu().numpy()
        return hits

    def _features(self, shared: Stacked, inputs: Tensor) -> Tensor:
        if self.precision == "bf16":
            shared, inputs = {name: value.bfloat16() for name, value in shared.items()}, inputs.bfloat16()
        fixed = {name: value.to(next(iter(shared.values())).dtype) for name, value in self.fixed.items()}
        features: Tensor = functional_call(self.body, {**shared, **fixed}, (inputs,))
        return features.float()

    def _logits(self, shared: Stacked, own: Stacked, inputs: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.head, own, (self._features(shared, inputs),))
        return logits

    def _observed(
        self, shared: Stacked, own: Stacked, inputs: Tensor, before: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Learning rate from two signals; the summaries they come from."""
        features = self._features(shared, inputs)
        now = summaries(functional_call(self.head, own, (features,)), features)
        return learning_rate(self.work.rate, before, now), now

    def _jointly(self, shared: Stacked, own: Stacked, inputs: Tensor, rate: Tensor) -> tuple[Stacked, Stacked]:
        gradients = grad(lambda shared, own: entropy(self._logits(shared, own, inputs)), (0, 1))
        for _ in range(self.work.joint_epochs):
            of_shared, of_own = gradients(shared, own)
            shared, own = _stepped(shared, of_shared, rate), _stepped(own, of_own, rate)
        return shared, own

    def _personally(self, shared: Stacked, own: Stacked, inputs: Tensor, rate: Tensor) -> Stacked:
        features = self._features(shared, inputs)
        gradients = grad(lambda own: entropy(functional_call(self.head, own, (features,))))
        for _ in range(self.work.personal_epochs):
            own = _stepped(own, gradients(own), rate)
        return own


def _stepped(parameters: Stacked, gradients: Stacked, rate: Tensor) -> Stacked:
    return {name: value - rate * gradients[name] for name, value in parameters.items()}
