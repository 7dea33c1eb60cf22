"""A method of one's own."""

from torch import Tensor

from fedade import Card, ClientContext, Method


class Smoothed(Method[Tensor]):
    """The deployed model's predictions, times a running mean of them."""

    about = Card(summary="predictions times their running mean", paper="none", keeps_body=True)

    momentum: float = 0.5
    """Share of the past that the mean keeps."""

    def begin(self, ctx: ClientContext) -> Tensor:
        return ctx.deployment.source_prior

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        prior = self.momentum * state + (1 - self.momentum) * self.probabilities(ctx).mean(0)
        return prior, {"prior": prior}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        weighted = self.probabilities(ctx) * state
        return weighted / weighted.sum(-1, keepdim=True)

    def probabilities(self, ctx: ClientContext) -> Tensor:
        logits = ctx.deployment.network.classify(ctx.deployment.parameters, ctx.deployed_features())
        return logits.softmax(-1)
