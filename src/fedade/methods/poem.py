"""POEM: bets that entropies have changed their law, and matches them to the law they had (Bar et al., NeurIPS 2024).

Entropies of labelled data that came with the model give the law without a shift. A bettor wagers on each sample's place
in that law; while nothing has changed it cannot win, bets stay near 0, and nothing moves. Where it wins, its bets say
which entropy each sample should have had, and the scales descend the squared distance to it. The law is that of batches
as large as the stream's, normalised as these are, by the batch's own statistics; other class frequencies change it too.
Logits are divided by the deployed temperature.

A client keeps 8 bytes per scale and shift. A timestep costs about 3 forward passes per sample; nothing is sent.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.maths.losses import entropy_from_logits
from fedade.parts.norm_layers import batch_logits, moved, norm_learner, own_batch_logits
from fedade.parts.optimisers import Learner, MomentumOptimiser
from fedade.parts.rates import constant_rate

BET_RATE = 1 / (8 * 3**0.5)
LARGEST_BET = 1.8
LEAST_STEP = 1e-12


class Bettor(NamedTuple):
    """The present bet, squared slopes so far, the logarithm of the wealth, and samples seen; scalars."""

    bet: Tensor
    squares: Tensor
    wealth: Tensor
    samples: Tensor


class PoemClient(NamedTuple):
    """Scales and shifts with their optimiser, and the bettor."""

    learner: Learner
    bettor: Bettor


class Poem(Method[PoemClient]):
    """Protected online entropy matching, with the constants of the paper's CIFAR experiments."""

    about = Card(
        summary="matches entropies to their law without a shift, only where bets on a change win",
        paper="POEM, NeurIPS 2024",
        reference=True,
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: MomentumOptimiser = MomentumOptimiser()
    warm_up: int = Field(100, ge=0)
    """Samples that are bet on before anything moves."""
    include_last_stage: bool = False
    """Also move the last stage, whose features are held to be too sensitive."""

    def begin(self, ctx: ClientContext) -> PoemClient:
        learner = norm_learner(ctx.deployment, "poem", self.optimiser, self.include_last_stage)
        zero = torch.zeros_like(ctx.deployment.accuracy)
        return PoemClient(learner, Bettor(zero, zero, zero, zero))

    def observe(self, ctx: ClientContext, state: PoemClient) -> tuple[PoemClient, Plan]:
        deployment = ctx.deployment
        law = deployment.constant(_law_of_batches(len(ctx.inputs)))
        heights = torch.arange(1, len(law) + 1, device=law.device, dtype=law.dtype) / len(law)
        sizes = entropy_from_logits(own_batch_logits(ctx, state.learner.own) / deployment.temperature)
        places, bettor = interpolated(sizes, law, heights), state.bettor
        targets = []
        for place in places.unbind():
            targets.append(place + bettor.bet / 2 * (place.square() - place))
            bettor = after_bet(bettor, place)
        wanted = interpolated(torch.stack(targets), heights, law)

        def loss(own: dict[str, Tensor]) -> Tensor:
            found = entropy_from_logits(batch_logits(deployment, own, ctx.inputs) / deployment.temperature)
            return 0.5 * (found - wanted).square().mean()

        slopes, warm = grad(loss)(state.learner.own), bettor.samples >= self.warm_up
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate, warm)
        plan = {"learning_rate": constant_rate(self.learning_rate, sizes[0]), "entropy": sizes.mean()}
        return PoemClient(learner, bettor), plan

    def predict(self, ctx: ClientContext, state: PoemClient) -> Tensor:
        return own_batch_logits(ctx, state.learner.own).softmax(-1)


def after_bet(bettor: Bettor, place: Tensor) -> Bettor:
    """The bettor after a sample whose entropy has this place, from 0 to 1, in the law without a shift."""
    odds = place - 0.5
    wealth = bettor.wealth + torch.log1p(bettor.bet * odds)
    slope = odds / (1 + bettor.bet * odds)
    held = (bettor.bet * odds > 0) & (bettor.bet.abs() > LARGEST_BET)
    slope = torch.where(held | (bettor.samples == 0), 0.0, slope)
    squares = bettor.squares + slope.square()
    bet = bettor.bet + BET_RATE * slope / squares.clamp_min(LEAST_STEP).sqrt()
    return Bettor(bet, squares, wealth, bettor.samples + 1)


def interpolated(values: Tensor, knots: Tensor, heights: Tensor) -> Tensor:
    """Heights `[n]` at values `[n]` between sorted knots, and the first or last beyond them."""
    gaps = knots.diff().clamp_min(LEAST_STEP)
    shares = ((values.unsqueeze(-1) - knots[:-1]) / gaps).clamp(0, 1)
    return heights[0] + (shares * heights.diff()).sum(-1)


@cache
def _law_of_batches(samples: int) -> Callable[[Deployment], Tensor]:
    """A function of a deployment: sorted entropies of its reference set in batches of so many samples."""

    def law(deployment: Deployment) -> Tensor:
        inputs = deployment.reference.inputs
        size = min(samples, len(inputs))
        # Rows at equal distances: batches hold all classes, in whatever order the set is.
        batches = [inputs[start :: len(inputs) // size][:size] for start in range(len(inputs) // size)]
        logits = torch.cat([batch_logits(deployment, {}, batch) for batch in batches])
        return entropy_from_logits(logits / deployment.temperature).sort().values

    return law
