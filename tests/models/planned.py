"""A module's pass by a plan beside the module's own, of several clients with weights of their own."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedade.models.traced import TracedPass


class Planned(nn.Module):
    """A module whose pass is that of a plan."""

    def __init__(self, plan: TracedPass, module: nn.Module) -> None:
        super().__init__()
        self.plan, self.module = plan, module

    def forward(self, inputs: Tensor) -> Any:
        """The plan's."""
        return self.plan.run(self.module, inputs)


def assert_same_values_and_gradients(
    plan: TracedPass, module: nn.Module, inputs: Tensor, within: Callable[[], Any] = nullcontext
) -> None:
    """Of three clients `[3, n, ...]`, in double precision, by weights and by inputs; `within` is around each pass."""
    weights = {key: torch.stack([value, 1.1 * value, 0.9 * value]) for key, value in module.state_dict().items()}
    planned = Planned(plan, module)

    def ours(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        with within():
            return functional_call(planned, {f"module.{key}": value for key, value in weights.items()}, (inputs,))

    def theirs(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        with within():
            return functional_call(module, weights, (inputs,))

    def slopes(run: Callable[..., Tensor]) -> Any:
        return vmap(grad(lambda weights, inputs: run(weights, inputs).square().sum(), (0, 1)))(weights, inputs)

    torch.testing.assert_close(vmap(ours)(weights, inputs), vmap(theirs)(weights, inputs), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(slopes(ours), slopes(theirs), rtol=1e-7, atol=1e-7)
