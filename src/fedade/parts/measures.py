"""Shift measures by name: how Fed-ADE may tell that a client's data have moved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, NamedTuple

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.tree import Tree
from fedade.maths.signals import distances, dynamics
from fedade.parts import channels
from fedade.parts.summaries import Signals, combine

MeasureName = Literal[
    "cosine", "kl", "jeffreys", "js", "hellinger", "tv", "w1-index", "wasserstein", "mmd", "energy", "bocpd"
]
FeatureMeasure = Literal["paired", "cosine"]
"""What follows the features: the measure's own channel, or the paper's, which isolates the change of predictions."""

NUM_SLICES = 64


class Remembered(NamedTuple):
    """What both channels remember between timesteps."""

    prediction: Tree
    feature: Tree


@dataclass(frozen=True)
class Measure:
    """A channel for the predictions, which gives S_unc, and one for the features, which gives S_rep."""

    summary: str
    prediction: channels.Channel
    feature: channels.Channel
    use_unc: bool = True
    use_rep: bool = True
    """Whether either counts in their combination."""

    def init(self, deployment: Deployment) -> Remembered:
        return Remembered(self.prediction.init(deployment), self.feature.init(deployment))

    def update(
        self, deployment: Deployment, state: Remembered, probabilities: Tensor, features: Tensor, key: Tensor
    ) -> tuple[Remembered, Signals]:
        prediction, unc = self.prediction.update(deployment, state.prediction, probabilities, key)
        feature, rep = self.feature.update(deployment, state.feature, features, key)
        return Remembered(prediction, feature), combine(unc, rep, self.use_unc, self.use_rep)


def choose_measure(name: MeasureName, feature_measure: FeatureMeasure, debiased: bool) -> Measure:
    """A registered measure, with the paper's feature channel and the noise correction where asked."""
    measure = MEASURES[name]
    if feature_measure == "cosine":
        measure = replace(measure, feature=_COSINE_FEATURE)
    if debiased:
        measure = replace(
            measure, prediction=channels.Debiased(measure.prediction), feature=channels.Debiased(measure.feature)
        )
    return measure


def _sliced(first: Tensor, second: Tensor) -> Tensor:
    return distances.sliced_wasserstein(first, second, channels.fixed_directions(NUM_SLICES, first[0]))


def _of_predictions(name: str, distance: Callable[..., Tensor]) -> channels.MeanSummary:
    """Of mean predictions q, where q⁰ is uniform."""
    return channels.MeanSummary(name, distance, dynamics.mean_prediction, channels.uniform_prior)


_COSINE_PREDICTION = _of_predictions("cosine distance", dynamics.uncertainty_dynamics)
# Of mean normalised features z, where z⁰ comes from the reference set.
_COSINE_FEATURE = channels.MeanSummary(
    "half cosine distance", dynamics.representation_dynamics, dynamics.mean_feature, attrgetter("initial_feature")
)
_ENERGY = channels.FeatureSet("energy distance", distances.energy_distance)


def _on_predictions(summary: str, name: str, distance: Callable[[Tensor, Tensor], Tensor]) -> Measure:
    """A distance of mean predictions, paired with a distance of features that has no parameter to choose."""
    return Measure(summary, _of_predictions(name, distance), _ENERGY)


MEASURES: Mapping[MeasureName, Measure] = {
    "cosine": Measure("the paper's; quadratic in small changes", _COSINE_PREDICTION, _COSINE_FEATURE),
    "kl": _on_predictions(
        "Kullback-Leibler, from the previous to the current batch", "1 - exp(-KL)", distances.kl_distance
    ),
    "jeffreys": _on_predictions("both directions of Kullback-Leibler", "1 - exp(-J)", distances.jeffreys_distance),
    "js": _on_predictions(
        "bounded and symmetric; classes may be absent", "Jensen-Shannon in bits", distances.jensen_shannon
    ),
    "hellinger": _on_predictions("linear in small changes, hence noisy ones too", "Hellinger", distances.hellinger),
    "tv": _on_predictions("the path length of the regret bound", "total variation", distances.total_variation),
    "w1-index": _on_predictions(
        "depends on the order of the classes: for ordered classes only",
        "Wasserstein-1 on class indices",
        distances.index_wasserstein,
    ),
    "wasserstein": Measure(
        "optimal transport; classes that look alike are close",
        replace(
            _of_predictions("Sinkhorn divergence", distances.sinkhorn_divergence), known=channels.costs_between_classes
        ),
        channels.FeatureSet("sliced Wasserstein", _sliced),
    ),
    "mmd": Measure(
        "kernel discrepancy of features; predictions as in the paper",
        _COSINE_PREDICTION,
        channels.FeatureSet("root of MMD²/2", distances.kernel_discrepancy),
    ),
    "energy": Measure("parameter-free distance of features; predictions as in the paper", _COSINE_PREDICTION, _ENERGY),
    "bocpd": Measure(
        "Bayesian online change-point detection; nearly 0 or 1",
        channels.ClassChangePoint(),
        channels.FeatureChangePoint(),
    ),
}
