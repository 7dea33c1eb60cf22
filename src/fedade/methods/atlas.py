"""ATLAS (Bai et al., NeurIPS 2022): a pool of linear heads, each with its own step size, and Hedge on top.

Every base learner is UOGD: online gradient descent of the head on reference losses weighted by the estimated prior, on
the deployed body's features. Hedge moves towards the learner with the least estimated risk, so that nobody has to know
how fast the prior changes. UOGD alone is the pool of one. Bounds that the published code leaves to the user come from
the deployment: the decision set is the ball that the deployed head touches, and gradients are bounded by the longest
reference feature. Only reference inputs are ever descended, so covariate shift is invisible and does harm. The step
sizes are the method, so it takes no other optimiser. A text model's head is its classifier here.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.core.split import weighted_mean
from fedade.core.tree import tree_map
from fedade.maths.hedging import hedge, mixture
from fedade.parts import last_layers
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse

Scalar = Float[Tensor, ""]
_IN_A_POOL = ", in a pool of step sizes under Hedge"


class AtlasClient(NamedTuple):
    """N heads, their step sizes and their Hedge weights, which need not sum to 1."""

    heads: dict[str, Tensor]
    step_sizes: Tensor
    log_weights: Tensor


class Atlas(Method[AtlasClient]):
    """Base learners with step sizes from slow to fast; the decision set is the ball that the deployed head touches."""

    pool: Literal["theorem", "released", "single"] = "theorem"
    """Step sizes of the paper's theorem, of its released code, or UOGD's only one."""
    step_sizes: tuple[NonNegativeFloat, ...] = ()
    """Step sizes in place of the pool, where given."""
    prior: Estimator = "simplex_ls"
    horizon: int = Field(100, ge=1)
    """T of the step sizes and of Hedge's rate."""
    hedge_rate: float | None = Field(None, gt=0)
    """None: 2 √(ln N / T)."""
    combine: Literal["weights", "outputs"] = "weights"
    """Whether heads are averaged, or their predictions."""

    @property
    def card(self) -> Card:
        alone = self.pool == "single" or len(self.step_sizes) == 1
        summary = f"head on frozen features descends the estimated risk{'' if alone else _IN_A_POOL}"
        return Card(summary, "Bai et al., NeurIPS 2022", reference=True, keeps_body=True)

    def begin(self, ctx: ClientContext) -> AtlasClient:
        """Copies of the deployed head, weighted equally."""
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        step_sizes = self._step_sizes(deployment)
        heads = tree_map(lambda value: value.expand(len(step_sizes), *value.shape), last_layers.last_layer(deployment))
        return AtlasClient(heads, step_sizes, torch.zeros_like(step_sizes))

    def observe(self, ctx: ClientContext, state: AtlasClient) -> tuple[AtlasClient, Plan]:
        """Every head takes a step on the estimated risk, and Hedge weighs them by the risk that they had before. Unlike
        in the released code, the weights see a risk at once, as in the paper, and not one timestep late."""
        deployment, prior = ctx.deployment, batch_prior(ctx, self.prior)
        examination = last_layers.reference_examination(deployment, prior)
        radius = _norm(last_layers.last_layer(deployment))

        def step(head: dict[str, Tensor], step_size: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            gradient, value = grad_and_value(lambda own: last_layers.loss(deployment, own, examination))(head)
            moved = {name: head[name] - step_size * gradient[name] for name in head}
            norm = _norm(moved)
            # To the nearest head in the ball that the deployed head touches
            scale = torch.where(norm > radius, radius / torch.where(norm > radius, norm, 1), 1)
            return {name: scale * tensor for name, tensor in moved.items()}, value

        heads, risks = vmap(step)(state.heads, state.step_sizes)
        hedge_rate = self.hedge_rate or 2 * math.sqrt(math.log(len(risks)) / self.horizon)
        log_weights = hedge(state.log_weights, risks, hedge_rate)
        rate = (log_weights.softmax(-1) * state.step_sizes).sum()
        plan = {"prior": prior, "learning_rate": rate, "risk": (state.log_weights.softmax(-1) * risks).sum()}
        return AtlasClient(heads, state.step_sizes, log_weights), plan

    def predict(self, ctx: ClientContext, state: AtlasClient) -> Tensor:
        deployment, features = ctx.deployment, last_layers.frozen_features(ctx)
        if self.combine == "weights":
            weights = state.log_weights.softmax(-1)
            mean = {name: weighted_mean(values, weights) for name, values in state.heads.items()}
            return last_layers.classified(deployment, mean, features).softmax(-1)
        outputs = vmap(lambda head: last_layers.classified(deployment, head, features).softmax(-1))(state.heads)
        return mixture(outputs, state.log_weights)

    def _step_sizes(self, deployment: Deployment) -> Tensor:
        diameter = 2 * _norm(last_layers.last_layer(deployment))
        if self.step_sizes:
            return diameter.new_tensor(self.step_sizes)
        # G: a cross-entropy's gradient by the logits is no longer than √2; that by the head, √2 ‖(h, 1)‖.
        features = last_layers.frozen_reference_features(deployment)
        bound = (2 * (features.square().sum(-1).max() + 1)).sqrt()
        if self.pool == "theorem":
            return theorem_pool(diameter, bound, deployment.confusion, self.horizon)
        return {"released": released_pool, "single": single_step_size}[self.pool](diameter, bound, self.horizon)


def _norm(head: dict[str, Tensor]) -> Tensor:
    return torch.stack([value.square().sum() for value in head.values()]).sum().sqrt()


def single_step_size(diameter: Scalar, gradient_bound: Scalar, horizon: int) -> Float[Tensor, " 1"]:
    """D / (G √T): one step size, as UOGD's released code sets it."""
    return (diameter / (gradient_bound * math.sqrt(horizon))).reshape(1)


def released_pool(diameter: Scalar, gradient_bound: Scalar, horizon: int) -> Float[Tensor, " N"]:
    """D / (G √T) · 2^i up to the first value above D / G, as in ATLAS's released code: ⌊½ log₂ T⌋ + 2 step sizes."""
    count = math.floor(math.log2(horizon) / 2) + 2
    return single_step_size(diameter, gradient_bound, horizon) * _powers_of_two(count, diameter)


def theorem_pool(
    diameter: Scalar, gradient_bound: Scalar, confusion: Float[Tensor, "K K"], horizon: int
) -> Float[Tensor, " N"]:
    """D σ / (2 G √(K T)) · 2^i, of which 1 + ⌈½ log₂(1 + 2T)⌉ (Bai et al., 2022, Theorem 2)."""
    count = 1 + math.ceil(math.log2(1 + 2 * horizon) / 2)
    conditioning: Tensor = torch.linalg.svdvals(confusion.double())[-1].to(confusion.dtype)
    smallest = diameter * conditioning / (2 * gradient_bound * math.sqrt(len(confusion) * horizon))
    return smallest * _powers_of_two(count, diameter)


def _powers_of_two(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, dtype=like.dtype, device=like.device).exp2()
