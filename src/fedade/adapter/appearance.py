"""How far inputs lie from held-out ones, whatever a model makes of them.

A model can be surer the further its inputs move, so that confidence alone does not say how much it is worth. What an
input looks like is a vector: a row of a table as it is; of an image each channel's mean, contrast and roughness.

Axes: m held-out samples, n samples, 2 moments (mean, mean square), D measurements of an input, K classes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST_DEVIATION = 0.5
"""Of a measurement that hardly varies, or not within a class, as a share of all measurements' root mean square."""
LEAST_RATIO = 0.01
"""Of variances, as low as that of a measurement that died is taken to be."""
_SMALL = 1e-6


def appearance(inputs: Tensor) -> Float[Tensor, "n D"]:
    """What inputs `[n, ...]` look like; nothing of tokens, whose numbers have no size."""
    if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
        return torch.zeros(len(inputs), 0, device=inputs.device)
    values = inputs.float()
    if values.ndim < 3:
        return values.reshape(len(values), -1)
    rows = values.flatten(2)
    steps = (values[..., 1:] - values[..., :-1]).flatten(2).square().mean(-1)
    return torch.cat([rows.mean(-1), (rows.var(-1) + _SMALL).log(), (steps + _SMALL).log()], -1)


class HeldOutAppearance(NamedTuple):
    """What held-out inputs look like, class by class."""

    centre: Float[Tensor, " D"]
    deviation: Float[Tensor, " D"]
    by_class: Float[Tensor, "K 2 D"]
    """Moments of every class, in units of these."""

    @classmethod
    def fit(cls, inputs: Tensor, labels: Int[Tensor, " m"], num_classes: int) -> "HeldOutAppearance":
        """From held-out data; a class without samples counts as all together."""
        seen = appearance(inputs)
        centre = seen.mean(0)
        raw = (seen - centre).square().mean(0).sqrt()
        least = LEAST_DEVIATION * raw.square().sum().div(max(1, len(raw))).sqrt().clamp(min=_SMALL)
        alone = cls(centre, raw.maximum(least), raw.new_zeros(num_classes, 2, len(raw)))
        looks = alone.looks(inputs)
        classes = [looks[labels == label] for label in range(num_classes)]
        return alone._replace(by_class=torch.stack([moments(some if len(some) else looks) for some in classes]))

    def looks(self, inputs: Tensor) -> Float[Tensor, "n D"]:
        """What inputs look like, in held-out units."""
        return (appearance(inputs) - self.centre) / self.deviation

    def moments(self, inputs: Tensor) -> Float[Tensor, "2 D"]:
        """Of what inputs look like, in held-out units."""
        return moments(self.looks(inputs))

    def distance(self, moments: Float[Tensor, "*T 2 D"], prior: Float[Tensor, "*T K"]) -> Float[Tensor, "*T"]:
        """How far inputs with these moments are from held-out ones whose classes are so frequent. √(2 KL) of normal
        laws, mean over the measurements: the size of a shift, in deviations; 0 where there are none."""
        expected = torch.einsum("...k,kbd->...bd", prior, self.by_class)
        mean, variance = _centred(moments)
        usual, spread = _centred(expected)
        unit = spread.clamp(min=LEAST_DEVIATION**2)
        ratio = (1 + (variance - spread) / unit).clamp(min=LEAST_RATIO)
        divergence = ratio - 1 - ratio.log() + (mean - usual).square() / unit
        return (divergence.sum(-1) / max(1, divergence.shape[-1])).clamp(min=0).sqrt()


def moments(looks: Float[Tensor, "*T n D"]) -> Float[Tensor, "*T 2 D"]:
    """Mean and mean square over samples."""
    return torch.stack([looks.mean(-2), looks.square().mean(-2)], -2)


def _centred(moments: Tensor) -> tuple[Tensor, Tensor]:
    mean, square = moments.unbind(-2)
    return mean, square - mean.square()
