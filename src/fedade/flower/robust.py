"""Centres of updates that a minority of participants cannot move far (Yin et al., 2018). Axis: C participants."""

from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.tree import Tree, tree_map
from fedade.flower.settings import FlowerSettings


def median(values: Tensor) -> Tensor:
    """The middle value of each coordinate; of an even number, the mean of the middle two."""
    ordered, count = values.sort(0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(values: Tensor, trim: float) -> Tensor:
    """The mean of each coordinate without the share `trim` of the values at either end."""
    cut = int(trim * len(values))
    return values.sort(0).values[cut : len(values) - cut].mean(0)


def centred(uplinks: Tree, settings: FlowerSettings) -> Tree:
    """Uplinks in whose place every participant sends the common centre, so that any mean of them is the centre."""
    if settings.aggregation == "mean":
        return uplinks

    def centre(values: Tensor) -> Tensor:
        found = median(values) if settings.aggregation == "median" else trimmed_mean(values, settings.trim)
        return found.expand_as(values)

    return tree_map(centre, uplinks)


def refuse_personal_downlinks(downlink: Tree, aggregation: str) -> None:
    """A centre is the same for all; a method that answers participants differently would lose its point."""
    if aggregation != "mean" and downlink:
        raise FedadeError(
            f"flower.aggregation: {aggregation} does not go with a method that answers each participant; use mean"
        )
