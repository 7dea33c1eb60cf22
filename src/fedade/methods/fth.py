"""FTH, follow the history (Wu et al., NeurIPS 2021): reweight by the prior of everything seen so far.

Only a class prior is adapted, never a weight: M⁻¹ of the mean prediction over all past batches. FTFWH looks back over a
window of the last batches only. Slow after a change, as it forgets nothing. Where the confusion matrix of the held-out
data is not quite that of the stream, an error remains however long the history.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.maths.priors.simplex import mix_with_uniform
from fedade.maths.signals.dynamics import mean_prediction
from fedade.parts.priors import UNIFORM_SHARE, deployed_probabilities, prior_from, refuse_unsafe_inverse, reweighted

BlackBoxEstimator = Literal["simplex_ls", "inv", "pinv_simplex", "ridge_clip", "rlls"]
"""Estimators that need mean predictions only, which is all that this method remembers."""


class FthClient(NamedTuple):
    """The prior in force and what it was estimated from."""

    prior: Tensor
    history: Tensor
    """Mean prediction of all batches `[K]`; with a window, the mean predictions of its batches `[window, K]`."""
    elapsed: Tensor
    """Batches seen."""


class Fth(Method[FthClient]):
    """Frozen classifier times the class prior of the past."""

    window: int | None = Field(None, ge=1)
    """Batches that FTFWH looks back over; None: all (FTH)."""
    prior: BlackBoxEstimator = "simplex_ls"
    uniform_share: float = Field(UNIFORM_SHARE, ge=0, le=1)
    """Share of the uniform distribution in the estimate."""

    @property
    def card(self) -> Card:
        past = "all batches so far" if self.window is None else f"the last {self.window} batches"
        summary = f"deployed model reweighted by the class prior of {past}"
        return Card(summary, "Wu et al., NeurIPS 2021", reweights=True, keeps_body=True)

    def begin(self, ctx: ClientContext) -> FthClient:
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        shape = (deployment.num_classes,) if self.window is None else (self.window, deployment.num_classes)
        source = deployment.source_prior
        return FthClient(source, source.new_zeros(shape), torch.zeros((), dtype=torch.int64, device=source.device))

    def observe(self, ctx: ClientContext, state: FthClient) -> tuple[FthClient, Plan]:
        """Add the unadapted model's mean prediction to the history, then invert the confusion of the whole."""
        predicted = mean_prediction(deployed_probabilities(ctx))
        elapsed = state.elapsed + 1
        if self.window is None:
            mean = history = state.history + (predicted - state.history) / elapsed
        else:
            newest = torch.arange(self.window, device=elapsed.device) == state.elapsed % self.window
            history = torch.where(newest.unsqueeze(-1), predicted, state.history)
            mean = history.sum(0) / elapsed.clamp(max=self.window)
        prior = mix_with_uniform(prior_from(ctx, mean.unsqueeze(0), self.prior), self.uniform_share)
        return FthClient(prior, history, elapsed), {"prior": prior}

    def predict(self, ctx: ClientContext, state: FthClient) -> Tensor:
        return reweighted(ctx, state.prior)
