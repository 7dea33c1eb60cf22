"""What labels would buy: every client fine-tunes its whole model on the labelled batch of each timestep.

An oracle. Its `post` accuracy is that of the very samples it was trained on, so `pre` and `fresh` are the figures to
read.
"""

import torch
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.parts.composition import own_prediction, trainable
from fedade.parts.objectives import labelled_samples
from fedade.parts.optimisers import Learner, Optimiser
from fedade.parts.rates import RateBounds, constant_rate
from fedade.parts.training import Training


class OracleFinetune(Method[Learner]):
    """Supervised steps on body and head, without a server."""

    about = Card("every client fine-tunes on the true labels of its batch", "none", oracle=True)

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    epochs: int = Field(4, ge=0)
    """Epochs per timestep."""
    batch_size: int = Field(32, ge=1)
    optimiser: Optimiser = Optimiser()

    def begin(self, ctx: ClientContext) -> Learner:
        own = trainable(ctx.deployment)
        return Learner(own, self.optimiser.start(own))

    def observe(self, ctx: ClientContext, state: Learner) -> tuple[Learner, Plan]:
        rate = constant_rate(self.rate.mid, ctx.deployment.source_prior[0])
        plan = {"learning_rate": rate}
        objective = labelled_samples(ctx.labels, torch.ones_like(ctx.labels, dtype=rate.dtype))
        training = Training(ctx, objective, plan, self.batch_size, self.optimiser)
        steps = training.steps(range(self.epochs))
        return Learner(*training.joint(state.own, ctx.deployment.parameters, steps, state.state)), plan

    def predict(self, ctx: ClientContext, state: Learner) -> Tensor:
        return own_prediction(ctx, state.own)
