"""Normalisation statistics that follow the stream, with weights untouched (AdaBN; Schneider et al., NeurIPS 2020).

`batch` uses each batch's own statistics, `mix` a little of them (the default, and the safe one), `ema` a running
average. Good under covariate shift and bad under label shift, where a batch's statistics say more of its classes than
of its inputs.

A client keeps nothing for `batch` and `mix`, and the statistics (8 bytes per normalised channel) for `ema`. A timestep
costs one forward pass per sample for `ema` and none otherwise; nothing is sent.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.normalisation import Mixed
from fedade.parts.composition import own_model, own_prediction
from fedade.parts.norm_layers import follow_stream, statistics_names, warn_without_batch_norm


class BnAdapt(Method[dict[str, Tensor]]):
    """Which statistics BatchNorm layers use, and how much of the batch is in them."""

    mode: Literal["batch", "mix", "ema"] = "mix"
    """The batch's statistics, a mix of them with the deployed, or a running average."""
    mix_weight: float = Field(0.1, ge=0, le=1)
    """`mix`: weight of the batch's own statistics."""
    source_samples: int | None = Field(None, ge=1)
    """`mix`: the N of Schneider et al., who weigh a batch of n by n / (N + n), with N = 16; None: `mix_weight`."""
    momentum: float = Field(0.1, ge=0, le=1)
    """`ema`: weight of a new batch in the running statistics."""

    @property
    def card(self) -> Card:
        summary = f"BatchNorm statistics from the stream ({self.mode}); the source where a model has none"
        return Card(summary, "BN adaptation, NeurIPS 2020")

    def begin(self, ctx: ClientContext) -> dict[str, Tensor]:
        deployment = ctx.deployment
        warn_without_batch_norm(deployment, "bn-adapt", "with nothing to adapt it predicts as source")
        names = sorted(statistics_names(deployment))
        return {name: deployment.parameters[name] for name in names} if self.mode == "ema" else {}

    def observe(self, ctx: ClientContext, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], Plan]:
        """Running statistics take in the batch; the other modes have nothing to remember."""
        if self.mode != "ema":
            return state, {}
        return follow_stream(ctx.deployment, own_model(ctx, state), state, ctx.inputs, self.momentum), {}

    def predict(self, ctx: ClientContext, state: dict[str, Tensor]) -> Tensor:
        if self.mode == "ema":
            return own_prediction(ctx, state)
        samples, before = len(ctx.inputs), self.source_samples
        weight = self.mix_weight if before is None else samples / (before + samples)
        features = ctx.deployed_features(Mixed(1.0 if self.mode == "batch" else weight))
        return ctx.deployment.network.classify(ctx.deployment.parameters, features).softmax(-1)
