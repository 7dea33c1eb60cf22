"""From a trace and its replay to the numbers of the theory."""

import math
from collections.abc import Mapping
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
from fedade.parts.training import num_examples
from fedade.theory.equations import path_lengths as theory
from fedade.theory.equations.convergence import convergence_ceiling, cross_sensitivity
from fedade.theory.equations.recovery import recovery
from fedade.theory.equations.regret import dynamic_regret, interval_regret
from fedade.theory.equations.regret_bound import BoundConstants, bound_terms, optimal_rate, optimal_rate_order
from fedade.theory.landscape import Landscape
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
    """Every measure that this run has, by its name in `fedade.theory.results.MEASURES`."""
    signals = _signals(recorded, seen.summaries)
    measures = {
        **signals,
        **_paths(oracle, recorded, seen.summaries),
        **_regrets(oracle, seen),
        **_bound(oracle, recorded, seen, signals.get("s", math.nan)),
        **_ceiling(clock, oracle, seen.landscape),
        **_recoveries(oracle, recorded),
        "sigma_min": float(theory.smallest_singular_value(oracle.deployment.confusion)),
        "observed_clients": float(len(oracle.clients)),
        "observed_timesteps": float(len(oracle.timesteps)),
    }
    return {name: value for name, value in measures.items() if not math.isnan(value)}


def _signals(recorded: RecordedRun, summaries: Summaries) -> Measures:
    """S̄ of all clients as the run noted it, else as the replay saw it on some; corrected ones from the replay."""
    raw, corrected = replayed_signals(summaries)
    if "s_unc" in recorded.columns and "s_rep" in recorded.columns:
        raw = (torch.from_numpy(recorded.columns[name]).double() for name in ("s_unc", "s_rep"))
    unc, rep = map(theory.cumulative_signal, raw)
    clean_unc, clean_rep = map(theory.cumulative_signal, corrected)
    clean = theory.combined_surrogate(clean_unc, clean_rep)
    return {
        **_spread("s_unc", unc),
        **_spread("s_rep", rep),
        **_spread("s", theory.combined_surrogate(unc, rep)),
        "s_unc_corrected": float(clean_unc.mean()),
        "s_rep_corrected": float(clean_rep.mean()),
        **_spread("s_corrected", clean),
    }


def replayed_signals(summaries: Summaries) -> tuple[Any, Any]:
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
    (unc, rep), _ = replayed_signals(summaries)
    prediction, feature = summaries.prediction.double().cpu(), summaries.feature.double().cpu()
    true_feature = summaries.true_feature.double().cpu()
    v_rep = theory.representation_path_length(true_feature)
    unc_error = theory.cumulative_signal(unc.double().cpu()) - theory.cosine_path_length(truth)
    rep_error = theory.cumulative_signal(rep.double().cpu()) - v_rep
    return {
        **_spread("v_l1", theory.l1_path_length(everyone)),
        **_spread("v_cos", theory.cosine_path_length(everyone)),
        **_spread("v_rep", v_rep),
        "unc_error": float(unc_error.abs().mean()),
        "unc_error_bound": float(_error_bound(prediction, truth).mean()),
        "rep_error": float(rep_error.abs().mean()),
        "rep_error_bound": float(_error_bound(feature, true_feature).mean() / 2),
    }


def _error_bound(estimates: Tensor, truths: Tensor) -> Tensor:
    errors = torch.linalg.vector_norm(estimates - truths, dim=-1)
    return theory.surrogate_error_bound(errors, theory.cosine_lipschitz_constant(estimates, truths))


def _regrets(oracle: Oracle, seen: Replay) -> Measures:
    """Regret against every comparator, within the run and within its periods."""
    weights = torch.from_numpy(oracle.weights)
    against = oracle.fixed_comparators | ({} if seen.finetuned is None else {"finetune": seen.finetuned})
    found = {
        "loss": _weighted_mean(seen.losses.cross_entropy, weights),
        "error": _weighted_mean(seen.losses.error, weights),
    }
    # All four schedules change on a scale of √T: a sine's period, a square wave's, a Bernoulli chain's mean run.
    period = max(1, round(math.sqrt(oracle.streams.num_timesteps)))
    for name, best in against.items():
        pair = (seen.losses.cross_entropy.cpu(), best.cross_entropy.cpu(), weights)
        periods = interval_regret(*pair, torch.from_numpy(oracle.timesteps), period).mean(0)
        found |= {
            f"loss_{name}": _weighted_mean(best.cross_entropy, weights),
            **_spread(f"regret_{name}", dynamic_regret(*pair)),
            f"regret_01_{name}": float(dynamic_regret(seen.losses.error.cpu(), best.error.cpu(), weights).mean()),
            f"interval_regret_{name}_max": float(periods.max()),
            f"interval_regret_{name}_sd": _deviation(periods),
        }
    return found


def _bound(oracle: Oracle, recorded: RecordedRun, seen: Replay, cumulative_signal: float) -> Measures:
    """The bound's terms at the run's mean rate and at the best one, where a run has a rate and moves a model."""
    if "learning_rate" not in recorded.columns or seen.landscape is None:
        return {}
    rate = float(np.nanmean(recorded.columns["learning_rate"]))
    constants = BoundConstants(
        num_classes=oracle.deployment.num_classes,
        gradient_norm=seen.landscape.gradient_norm,
        loss=seen.loss_bound,
        radius=seen.radius,
        singular_value=float(theory.smallest_singular_value(oracle.deployment.confusion)),
        cumulative_signal=cumulative_signal,
        num_timesteps=oracle.streams.num_timesteps,
    )
    terms, best = bound_terms(constants, rate), optimal_rate(constants)
    return {
        "rate": rate,
        "gradient_norm": constants.gradient_norm,
        "loss_bound": constants.loss,
        "radius": constants.radius,
        "bound_optimisation": terms.optimisation,
        "bound_projection": terms.projection,
        "bound_adaptation": terms.adaptation,
        "bound": terms.total,
        "rate_star_order": optimal_rate_order(cumulative_signal, constants.num_timesteps),
        "rate_star": best,
        "bound_at_rate_star": bound_terms(constants, best).total,
    }


def _ceiling(clock: Clock, oracle: Oracle, land: Landscape | None) -> Measures:
    """The largest rates of which the convergence theorem speaks, with what was measured in place of its constants."""
    if land is None:
        return {}
    rho_squared, delta_squared = land.diversity()
    chi = cross_sensitivity(land.k_shared, land.k_personal, land.k_cross)
    participants = clock.rounds.participants(clock.seeds, clock.num_clients, None).shape[1]
    ceiling = convergence_ceiling(rho_squared, chi, participants, clock.num_clients)
    steps = _local_steps(clock.method, oracle)
    return {
        "k_shared": land.k_shared,
        "k_personal": land.k_personal,
        "chi": chi,
        "rho_squared": rho_squared,
        "delta_squared": delta_squared,
        "ceiling": ceiling,
        "ceiling_shared": ceiling / (land.k_shared * steps),
        "ceiling_personal": ceiling / (land.k_personal * steps),
    }


def _local_steps(method: Method, oracle: Oracle) -> float:
    """E: gradient steps of a participant in a round; NaN for methods that count otherwise."""
    if not isinstance(method, FedAde):
        return math.nan
    examples = num_examples(oracle.deployment.reference, OBJECTIVES[method.objective], oracle.streams.settings.samples)
    return (method.joint_epochs + method.personal_epochs) * math.ceil(examples / method.batch_size)


def _recoveries(oracle: Oracle, recorded: RecordedRun) -> Measures:
    """Recovery after jumps of ω, on fresh draws where the run scored them."""
    name = "accuracy_fresh" if "accuracy_fresh" in recorded.columns else "accuracy_post"
    accuracies = torch.from_numpy(recorded.columns[name])
    weights = torch.from_numpy(np.ascontiguousarray(oracle.streams.schedule[recorded.clients]))
    found: Measures = {}
    for direction, towards in (("away", 1), ("back", 0)):
        steps, count = recovery(accuracies, weights, towards)
        found |= {
            f"recovery_{direction}": math.nan if steps is None else float(steps),
            f"changes_{direction}": float(count),
        }
    return found


def _spread(name: str, values: Tensor) -> Measures:
    return {name: float(values.mean()), f"{name}_sd": _deviation(values)}


def _deviation(values: Tensor) -> float:
    return float(values.std()) if len(values) > 1 else 0.0


def _weighted_mean(losses: Tensor, weights: Tensor) -> float:
    return float((losses.cpu() * weights).sum(-1).mean() / weights.sum())
