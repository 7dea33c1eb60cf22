"""Methods of somebody else's package, which names one of them as an entry point: an example, and mistakes."""

import random

import torch
from torch import Tensor

from fedade import Card, ClientContext, Method


class Smoothed(Method[Tensor]):
    """The deployed model's predictions, reweighted by a running mean of them."""

    momentum: float = 0.5

    @property
    def card(self) -> Card:
        return Card(summary="predictions times their running mean", paper="none", keeps_body=True)

    def begin(self, ctx: ClientContext) -> Tensor:
        return ctx.deployment.source_prior

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mean = self._probabilities(ctx).mean(0)
        prior = self.momentum * state + (1 - self.momentum) * mean
        return prior, {"prior": prior}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        weighted = self._probabilities(ctx) * state
        return weighted / weighted.sum(-1, keepdim=True)

    @staticmethod
    def _probabilities(ctx: ClientContext) -> Tensor:
        features = ctx.deployed_features()
        return ctx.deployment.network.classify(ctx.deployment.parameters, features).softmax(-1)


class Guessing(Smoothed):
    """Draws from Python's own generator instead of its key."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        new, plan = super().observe(ctx, state)
        return new, {**plan, "mood": new.sum() * random.random()}


class Mutating(Smoothed):
    """Writes to the state that it was given."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        new, plan = super().observe(ctx, state)
        return state.copy_(new), plan


class Asking(Smoothed):
    """Asks for a number, which no map over clients can give."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return super().observe(ctx, state * (1 if float(state.sum()) > 0 else 2))


class WritingTheSame(Smoothed):
    """Writes to the state that it was given, and changes no value."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        state.mul_(1)
        return super().observe(ctx, state)


class Lacking(Method[Tensor]):
    """Has not one of a method's functions but this."""

    def begin(self, ctx: ClientContext) -> Tensor:
        return ctx.deployment.source_prior


class Logarithms(Smoothed):
    """Gives no probabilities."""

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return super().predict(ctx, state).log()


class OneAnswer(Smoothed):
    """Gives one answer for all inputs."""

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return state


class Planless(Smoothed):
    """Forgets the plan."""

    def observe(self, ctx: ClientContext, state: Tensor) -> Tensor:  # type: ignore[override]
        return state


class Growing(Smoothed):
    """Has a state that grows."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return state.repeat(2), {}


class Counting(Smoothed):
    """Keeps a number of Python's."""

    def begin(self, ctx: ClientContext) -> Tensor:
        return {"seen": 0}  # type: ignore[return-value]


class Dicing(Smoothed):
    """Draws from PyTorch's generator."""

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return torch.rand(len(ctx.inputs), len(state)).softmax(-1)


class Failing(Smoothed):
    """Raises an error of its own."""

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        raise ValueError("out of luck")


NOT_A_METHOD = {"name": "smoothed"}
