"""From a trace and its replay to the numbers of the theory."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.engine.clock import Clock
from fedade.maths.signals import dynamics
from fedade.maths.signals.distances import without_noise_floor
from fedade.methods.fed_ade import FedAde
from fedade.parts.objectives import OBJECTIVES
from fedade.parts.training import examples_per_epoch
from fedade.theory.equations import regret_bound
from fedade.theory.equations.convergence import Convergence, gradient_diversity
from fedade.theory.equations.recovery import recovery
from fedade.theory.oracle import Oracle
from fedade.theory.replay import Replay, Summaries

Measures = dict[str, float]


class RecordedRun(NamedTuple):
    """The rows of one method and seed, by client and timestep."""

    clients: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    """`[N, T]`; a column that the method does not have is absent."""


def panel(table: pa.Table, method: str, seed: int, num_timesteps: int) -> RecordedRun:
    """A trace's rows in order; an unfinished run is refused."""
    chosen = trace.where(table, method=method, seed=seed)
    order = np.lexsort((trace.column(chosen, "timestep"), trace.column(chosen, "client")))
    clients = np.unique(trace.column(chosen, "client"))
    if len(chosen) != len(clients) * num_timesteps:
        raise FedadeError(
            f"theory: {method}, seed {seed} has {len(chosen)} rows for {len(clients)} clients and {num_timesteps} "
            "timesteps; finish its run first"
        )
    names = [name for name in chosen.column_names if name not in trace.IDENTIFIERS]
    values = {name: trace.column(chosen, name)[order].reshape(len(clients), num_timesteps, -1) for name in names}
    columns = {name: value[..., 0] for name, value in values.items() if value.shape[-1] == 1}
    return RecordedRun(
        clients, {name: value for name, value in columns.items() if not np.isnan(value.astype(float)).all()}
    )


def measures_of(clock: Clock, oracle: Oracle, recorded: RecordedRun, seen: Replay) -> Measures:
    """Every measure that this run has, by its name in docs/theory.md."""
    signals, paths = _signals(recorded, seen.summaries), _paths(oracle, recorded, seen.summaries)
    measures = {
        **signals,
        **paths,
        "sigma_min": regret_bound.smallest_singular_value(oracle.deployment.confusion),
        **_regrets(oracle, seen),
        **_bound(oracle, recorded, seen, signals["s"], paths["v_l1"]),
        **_convergence(clock, oracle, recorded, seen),
        **_recoveries(oracle, recorded),
        "observed_clients": float(len(oracle.clients)),
        "observed_timesteps": float(len(oracle.timesteps)),
    }
    return {name: value for name, value in measures.items() if not math.isnan(value)}


def _signals(recorded: RecordedRun, summaries: Summaries) -> Measures:
    """S̄ of all clients as the run noted it, else as the replay saw it on some; corrected ones from the replay."""
    raw, corrected = replayed_signals(summaries)
    if "s_unc" in recorded.columns and "s_rep" in recorded.columns:
        raw = [torch.from_numpy(recorded.columns[name]).double() for name in ("s_unc", "s_rep")]
    unc, rep = (signal.sum(-1) for signal in raw)
    clean_unc, clean_rep = (signal.sum(-1) for signal in corrected)
    return {
        **_spread("s_unc", unc),
        **_spread("s_rep", rep),
        **_spread("s", (unc + rep) / 2),
        "s_unc_corrected": float(clean_unc.mean()),
        "s_rep_corrected": float(clean_rep.mean()),
        **_spread("s_corrected", (clean_unc + clean_rep) / 2),
    }


def replayed_signals(summaries: Summaries) -> tuple[list[Tensor], list[Tensor]]:
    """S_unc and S_rep of the observed clients, `[c, T]`: as they are, and beyond the noise of finite batches."""
    raw, corrected = [], []
    for measure, values, floors in (
        (dynamics.uncertainty_dynamics, summaries.prediction, summaries.prediction_floor),
        (dynamics.representation_dynamics, summaries.feature, summaries.feature_floor),
    ):
        raw.append(measure(values[:, :-1], values[:, 1:]))
        corrected.append(without_noise_floor(raw[-1], floors[:, :-1], floors[:, 1:]))
    return raw, corrected


def _paths(oracle: Oracle, recorded: RecordedRun, summaries: Summaries) -> Measures:
    """True path lengths of all clients; how far the signals are from them, of the observed ones."""
    everyone, truth = oracle.priors(recorded.clients), oracle.priors(oracle.clients)
    unc, rep = (signal.double().cpu().sum(-1) for signal in replayed_signals(summaries)[0])
    prediction, feature, true_feature = (
        value.double().cpu() for value in (summaries.prediction, summaries.feature, summaries.true_feature)
    )
    v_rep = regret_bound.cosine_path_length(true_feature) / 2
    return {
        **_spread("v_l1", regret_bound.l1_path_length(everyone)),
        **_spread("v_cos", regret_bound.cosine_path_length(everyone)),
        **_spread("v_rep", v_rep),
        "unc_error": float((unc - regret_bound.cosine_path_length(truth)).abs().mean()),
        "unc_error_bound": float(regret_bound.surrogate_error_bound(prediction, truth).mean()),
        "rep_error": float((rep - v_rep).abs().mean()),
        "rep_error_bound": float(regret_bound.surrogate_error_bound(feature, true_feature).mean() / 2),
    }


def _regrets(oracle: Oracle, seen: Replay) -> Measures:
    weights = torch.from_numpy(oracle.weights)
    regrets = {
        "loss": _weighted_mean(seen.losses.cross_entropy, weights),
        "error": _weighted_mean(seen.losses.error, weights),
    }
    # All four schedules change on a scale of √T: a sine's period, a square wave's, a Bernoulli chain's mean run.
    period = max(1, round(math.sqrt(oracle.streams.num_timesteps)))
    for name, best in oracle.comparators.items():
        pair = (seen.losses.cross_entropy.cpu(), best.cross_entropy.cpu(), weights)
        periods = regret_bound.interval_regret(*pair, torch.from_numpy(oracle.timesteps), period).mean(0)
        regrets |= {
            f"loss_{name}": _weighted_mean(best.cross_entropy, weights),
            **_spread(f"regret_{name}", regret_bound.dynamic_regret(*pair)),
            f"regret_01_{name}": float(
                regret_bound.dynamic_regret(seen.losses.error.cpu(), best.error.cpu(), weights).mean()
            ),
            f"interval_regret_{name}_max": float(periods.max()),
            f"interval_regret_{name}_sd": _deviation(periods),
        }
    return regrets


def _bound(oracle: Oracle, recorded: RecordedRun, seen: Replay, signal: float, path: float) -> Measures:
    """The bound's terms at the run's mean rate and at the best one, where a run has a rate and moves a model."""
    if "learning_rate" not in recorded.columns or seen.steepness is None:
        return {}
    rate, horizon = float(np.nanmean(recorded.columns["learning_rate"])), oracle.streams.num_timesteps
    constants = regret_bound.BoundConstants(
        num_classes=oracle.deployment.num_classes,
        gradient_norm=seen.steepness.gradient_norm,
        loss=seen.loss_bound,
        radius=seen.radius,
        singular_value=regret_bound.smallest_singular_value(oracle.deployment.confusion),
        variation=signal,
        num_timesteps=horizon,
    )
    terms, best = regret_bound.bound_terms(constants, rate), regret_bound.optimal_rate(constants)
    # B V^L1 bounds how far losses moved only while P(x | y) stays.
    of_path = (
        None
        if oracle.streams.settings.shifts_inputs
        else regret_bound.bound_terms(replace(constants, variation=path), rate)
    )
    return {
        "rate": rate,
        "gradient_norm": constants.gradient_norm,
        "loss_bound": constants.loss,
        "radius": constants.radius,
        "bound_optimisation": terms.optimisation,
        "bound_projection": terms.projection,
        "bound_adaptation": terms.adaptation,
        "bound": terms.total,
        "bound_adaptation_l1": math.nan if of_path is None else of_path.adaptation,
        "bound_l1": math.nan if of_path is None else of_path.total,
        "rate_star_order": regret_bound.optimal_rate_order(signal, horizon),
        "rate_star": best,
        "bound_at_rate_star": regret_bound.bound_terms(constants, best).total,
    }


def _convergence(clock: Clock, oracle: Oracle, recorded: RecordedRun, seen: Replay) -> Measures:
    """The convergence theorem's ceiling and both sides of its inequality, with measured values for its constants."""
    steep = seen.steepness
    if steep is None:
        return {}
    loss, shared, personal, spread = (torch.tensor(column).double() for column in zip(*seen.slopes, strict=True))
    rho_squared, delta_squared = gradient_diversity(spread, shared)
    steps = local_steps(clock.method, oracle)
    curvatures = (steep.k_shared, steep.k_personal, steep.k_cross)
    variances = (steep.variance_shared / steps.samples, steep.variance_personal / steps.samples)
    participants = clock.rounds.participants(clock.seeds, clock.num_clients, None).shape[1]
    theorem = Convergence(*curvatures, rho_squared, delta_squared, *variances, participants, clock.num_clients)
    # A step's rate times these is the theorem's η, for ψ and for φ.
    scales = (steep.k_shared * steps.shared, steep.k_personal * steps.personal)
    rates = [scale * float(np.nanmean(recorded.columns.get("learning_rate", math.nan))) for scale in scales]
    applies = min(rates) > 0
    bound = math.nan
    if applies:  # losses before a timestep's rounds; no cross-entropy is below 0
        rounds, between = clock.rounds.per_timestep, (min(rates), max(rates))
        bound = theorem.descent_bound(float(loss[::2].mean()), between, rounds, round(steps.personal))
    return {
        "k_shared": theorem.k_shared,
        "k_personal": theorem.k_personal,
        "chi": theorem.chi,
        "rho_squared": rho_squared,
        "delta_squared": delta_squared,
        "steps_shared": steps.shared,
        "steps_personal": steps.personal,
        "ceiling": theorem.ceiling(),
        "ceiling_shared": theorem.ceiling() / scales[0] if applies else math.nan,
        "ceiling_personal": theorem.ceiling() / scales[1] if applies else math.nan,
        "descent": theorem.descent(float(shared.mean()), float(personal.mean())),
        "descent_bound": bound,
    }


class LocalSteps(NamedTuple):
    """E: a participant's gradient steps in a round, and the samples of each."""

    shared: float
    """Steps that move ψ: the joint ones."""
    personal: float
    """Steps that move φ: all."""
    samples: float


def local_steps(method: Method, oracle: Oracle) -> LocalSteps:
    """The steps that Fed-ADE takes, as its epochs read the data; NaN for methods that count otherwise."""
    if not isinstance(method, FedAde):
        return LocalSteps(math.nan, math.nan, math.nan)
    reference, samples = oracle.deployment.reference, oracle.streams.settings.samples
    examples = examples_per_epoch(reference, OBJECTIVES[method.objective], samples, method.reference_draws)
    per_epoch, epochs = float(math.ceil(examples / method.batch_size)), method.joint_epochs + method.personal_epochs
    return LocalSteps(method.joint_epochs * per_epoch, epochs * per_epoch, min(examples, method.batch_size))


def _recoveries(oracle: Oracle, recorded: RecordedRun) -> Measures:
    """Recovery after jumps of ω, on fresh draws where the run scored them."""
    name = "accuracy_fresh" if "accuracy_fresh" in recorded.columns else "accuracy_post"
    accuracies = torch.from_numpy(recorded.columns[name])
    weights = torch.from_numpy(np.ascontiguousarray(oracle.streams.schedule[recorded.clients]))
    recoveries: Measures = {}
    for direction, towards in (("away", 1), ("back", 0)):
        steps, count = recovery(accuracies, weights, towards)
        recoveries |= {
            f"recovery_{direction}": math.nan if steps is None else float(steps),
            f"changes_{direction}": float(count),
        }
    return recoveries


def _spread(name: str, values: Tensor) -> Measures:
    return {name: float(values.mean()), f"{name}_sd": _deviation(values)}


def _deviation(values: Tensor) -> float:
    return float(values.std()) if len(values) > 1 else 0.0


def _weighted_mean(losses: Tensor, weights: Tensor) -> float:
    return float((losses.cpu() * weights).sum(-1).mean() / weights.sum())
