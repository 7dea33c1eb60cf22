"""A layer's statistics corrected by a batch, in one operation: what goes into it and what comes out, for one client.

What it means says `fedade.methods.fed_ade_plus`, where the same is written step by step. Axes: 2 moments, C channels of
the layer, T channels of its group of layers, L layers of that group, K classes, M conditions.
"""

from typing import NamedTuple

from torch import Tensor


class Correcting(NamedTuple):
    """Tensors that a correction follows from; those of a whole group of layers are given as they are."""

    moments: Tensor
    """`[2, n, C]`, of each sample, or of the whole batch where n is 1."""
    mean: Tensor
    variance: Tensor
    """`[C]`, as deployed."""
    prior: Tensor
    """`[K]`"""
    sizes: Tensor
    samples: Tensor
    """`[M, 2, T]` and `[M, 2, L]`: what earlier batches left unexplained, and how many samples show it."""
    squares: Tensor | None
    widths: Tensor | None
    """`[M]`: what earlier layers said of the conditions; None before the first."""
    class_means: Tensor
    within: Tensor
    scarcity: Tensor
    """`[2, K, T]`, `[2, T]` and `[K]`: moments of the classes, the same for all clients."""


class CorrectionRule(NamedTuple):
    """Numbers that a correction follows from."""

    first_channel: int
    layer: int
    """Where the layer begins among the channels of its group, and which of its layers it is."""
    channels_heard: int
    """Of all layers that have spoken, this one included, for both moments."""
    samples: int
    """Of the batch."""
    evenness: float | None
    """Σ_k μ0_k² of the source prior, where the prior is a forecast."""
    samples_of_prior: float
    doubt: float
    new: float
    fewest_samples: float
    least_variance: float
    recognises: bool


class CorrectedLayer(NamedTuple):
    """What a batch makes of a layer."""

    moments: Tensor
    """`[2, C]`, of the batch."""
    mean: Tensor
    variance: Tensor
    """`[C]`"""
    size: Tensor
    samples: Tensor
    """`[1, 2, C]` and `[1, 2, 1]`: what is now known of the condition."""
    trust: Tensor
    """`[1, 2, 1]`"""
    heard: tuple[Tensor, Tensor]
    """`[M]` each: squares and widths with what this layer says, if it recognises conditions."""
