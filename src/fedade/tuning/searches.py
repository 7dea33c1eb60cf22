"""Which constants of a method are free, and what is tried for them: the same number of trials for every method."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedade.core.deployment import Deployment, Reference
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.maths.losses import class_weights, estimated_risk
from fedade.methods.fed_ade import FedAde
from fedade.parts.rates import Paces, RateBounds
from fedade.scenarios.streams import ShiftStreams

Settings = dict[str, Any]


class Stage(NamedTuple):
    """Some trials side by side."""

    candidates: Callable[[Method], Sequence[Settings]]
    """Given the best so far, settings to try on top of it."""
    worth: float = 0.0
    """How much more accurate a trial must be to be preferred: what moves more of the model should earn it."""


TRIALS = 18
"""How many trials every method gets."""
MEASURED_ON = 500
"""Labelled examples that gradients are measured on."""
WORTH = 0.001
"""Accuracy that a larger step must add: about two standard errors of a difference between trials."""
DESCENTS = (0.01, 0.03, 0.1, 0.3)
"""Fixed rates to try, by the risk that a first step would remove if the risk were linear, in nats."""


def stages(method: Method, scenario: Scenario) -> Iterator[Stage]:
    """What is tried, one stage after the other."""
    if isinstance(method, FedAde):
        return _of_fed_ade(method, scenario)
    return _of_rate(method)


def is_tunable(method: Method) -> bool:
    """Whether it has constants that a search would choose."""
    return not method.card.oracle and (isinstance(method, FedAde) or _rate_of(method) is not None)


def _of_fed_ade(method: FedAde, scenario: Scenario) -> Iterator[Stage]:
    """The size of a fixed rate on centred biases alone; bounds around it; steps that are not centred; the pull back to
    the deployed head; then the head's weights, and the shared layers."""
    streams = scenario.streams
    assert isinstance(streams, ShiftStreams)  # noqa: S101 - simulated drift has no others
    priors = torch.from_numpy(streams.target_priors[:4]).to(scenario.deployment.source_prior)
    descent = first_descents(scenario.deployment, _labelled(scenario), priors, method)
    base = "biases" if descent["biases"] else "weights"
    only_base = Paces(shared=0, weights=0, biases=0).model_copy(update={base: 1.0})

    can_be_centred = method.objective == "bbse" and (method.personal_draws or method.reference_draws) == "epoch"

    def relative(name: str, share: float) -> float:
        """The pace at which a part removes this share of the risk that the base does."""
        return share * descent[base] / max(descent[name], 1e-12)

    def rates(low: float, mid: float, high: float) -> Settings:
        return {"rate": RateBounds(low=low, mid=mid, high=high)}

    def fixed(_: Method) -> list[Settings]:
        sizes = [drop / descent[base] for drop in DESCENTS]
        return [{**rates(size, size, size), "paces": only_base, "centred": can_be_centred} for size in sizes]

    def around(best: Method) -> list[Settings]:
        mid = best.rate.mid if isinstance(best, FedAde) else 0.0
        return [rates(mid / below, mid, mid * above) for below, above in ((1, 3), (3, 3), (3, 6), (10, 3), (10, 6))]

    def paced(name: str, shares: Sequence[float]) -> Stage:
        def candidates(best: Method) -> list[Settings]:
            paces = best.paces if isinstance(best, FedAde) else only_base
            return [{"paces": paces.model_copy(update={name: relative(name, share)})} for share in shares]

        return Stage(candidates, WORTH)

    yield Stage(fixed)
    yield Stage(around)
    if can_be_centred:
        yield Stage(lambda _: [{"centred": False}], WORTH)
    yield Stage(lambda _: [{"anchor": pull} for pull in (0.003, 0.01)])
    if base == "biases":
        yield paced("weights", (0.1, 1.0))
    if method.joint_epochs:  # else nothing moves the shared layers
        yield paced("shared", (0.03, 0.3, 1.0, 3.0))


def _of_rate(method: Method) -> Iterator[Stage]:
    """Its rate, from a hundredth of the published one upwards."""
    rate = _rate_of(method)
    factors = [10.0 ** (power / 3) for power in range(-6, TRIALS - 6)]
    if isinstance(rate, RateBounds):
        scaled: list[Settings] = [
            {"rate": RateBounds(**{name: value * factor for name, value in rate.model_dump().items()})}
            for factor in factors
        ]
    else:
        scaled = [{"learning_rate": float(rate or 0) * factor} for factor in factors]
    yield Stage(lambda _: scaled)


def _rate_of(method: Method) -> RateBounds | float | None:
    settings: Mapping[str, Any] = dict(method)
    rate: RateBounds | float | None = settings.get("rate", settings.get("learning_rate"))
    return rate


def first_descents(deployment: Deployment, labelled: Reference, priors: Tensor, method: FedAde) -> dict[str, float]:
    """By how much a first step of rate 1 on shared layers, weights and biases, each alone, would lower the estimated
    risk to first order: ⟨∇F̂, direction⟩, a mean over priors. Rates in this unit fit any network and optimiser."""
    network, trainable = deployment.network, deployment.network.trainable()
    moving = {name: value for name, value in deployment.parameters.items() if name in trainable}

    def risk(moved: dict[str, Tensor], prior: Tensor) -> Tensor:
        logits = network.logits({**deployment.parameters, **moved}, labelled.inputs)
        return estimated_risk(logits, labelled.labels, class_weights(prior, labelled.labels))

    totals = {"shared": 0.0, "weights": 0.0, "biases": 0.0}
    for prior in priors:
        gradients = grad(risk)(moving, prior)
        directions, _ = method.optimiser.directions(moving, gradients, method.optimiser.start(moving))
        for name, gradient in gradients.items():
            personal = "biases" if name.endswith("bias") else "weights"
            part = "shared" if deployment.split.is_shared(name) else personal
            totals[part] += float((gradient * directions[name]).sum()) / len(priors)
    return totals


def _labelled(scenario: Scenario) -> Reference:
    if scenario.references is None:
        held = scenario.deployment.reference
    else:
        pool, rows, _ = scenario.references
        chosen = torch.unique(rows)
        held = Reference(pool.inputs[chosen], pool.labels[chosen])
    every = max(1, len(held.labels) // MEASURED_ON)
    return Reference(held.inputs[::every], held.labels[::every])
