"""No adaptation: the deployed model as it is, the row that the paper's table lacks."""

from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan


class Source(Method[tuple[()]]):
    """Predicts with the deployed model for ever."""

    about = Card("no adaptation: the deployed model", "none", keeps_body=True)

    def begin(self, ctx: ClientContext) -> tuple[()]:
        return ()

    def observe(self, ctx: ClientContext, state: tuple[()]) -> tuple[tuple[()], Plan]:
        return state, {}

    def predict(self, ctx: ClientContext, state: tuple[()]) -> Tensor:
        return ctx.deployment.network.classify(ctx.deployment.parameters, ctx.deployed_features()).softmax(-1)
