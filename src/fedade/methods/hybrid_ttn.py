"""Hybrid-TTN: batch statistics for the channels that label shift moves least (Vianna et al., CoLLAs 2024).

Late layers tell classes apart, so their statistics change with the class mix; early ones tell the inputs' condition.
The first layer takes the batch's own statistics in all channels, the last in none, those between in a share that falls
with depth: in the channels whose statistics are nearest to the deployed ones. This is the released rule, which knows
neither classes nor a prior; the paper also weighs channels by class.

A client keeps nothing. A timestep costs one forward pass per sample, and nothing is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.normalisation import ByMoments, InputMoments, Statistics, batch_statistics
from fedade.parts.norm_layers import warn_without_batch_norm
from fedade.parts.running_norms import batch_norm_layers


class HybridTtn(Method[tuple[()]]):
    """Statistics of the batch where it differs least, and of the deployed model elsewhere."""

    about = Card(
        summary="batch statistics in a share of the channels that falls with depth; made for BatchNorm",
        paper="Vianna et al., CoLLAs 2024",
    )

    furthest: bool = False
    """Adapt the channels whose statistics are furthest from the deployed ones, as the released `switch`."""

    def begin(self, ctx: ClientContext) -> tuple[()]:
        warn_without_batch_norm(ctx.deployment, "hybrid-ttn", "with nothing to adapt it predicts as source")
        return ()

    def observe(self, ctx: ClientContext, state: tuple[()]) -> tuple[tuple[()], Plan]:
        return state, {}

    def predict(self, ctx: ClientContext, state: tuple[()]) -> Tensor:
        network, parameters = ctx.deployment.network, ctx.deployment.parameters
        norms = NearestChannels(adapted_channels(batch_norm_layers(ctx.deployment)), self.furthest)
        return network.logits(parameters, ctx.inputs, norms).softmax(-1)


def adapted_channels(layers: Mapping[str, Statistics]) -> dict[str, int]:
    """How many channels of each layer are adapted: all of the first, none of the last."""
    last = max(1, len(layers) - 1)
    return {
        layer: (last - place) * len(statistics.mean) // last for place, (layer, statistics) in enumerate(layers.items())
    }


@dataclass(frozen=True)
class NearestChannels(ByMoments):
    """The batch's statistics in so many channels per layer: those nearest to the deployed ones, or furthest."""

    adapted: Mapping[str, int]
    furthest: bool = False

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        wanted, batch = self.adapted[layer], batch_statistics(inputs)
        if isinstance(inputs, InputMoments):
            count = inputs.samples * inputs.pixels
        else:
            count = inputs.numel() // inputs.shape[1]
        unbiased = batch.variance * count / max(1, count - 1)
        distance = (deployed.mean - batch.mean).square() + (deployed.variance.sqrt() - unbiased.sqrt()).square()
        if wanted == len(distance):
            return batch
        ordered = (-distance if self.furthest else distance).sort()
        near = (-distance if self.furthest else distance) < ordered.values[wanted]
        return Statistics(*(torch.where(near, new, old) for new, old in zip(batch, deployed, strict=True)))
