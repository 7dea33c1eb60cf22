"""What theory says of a run, in numbers: one row per method and seed."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedade.reporting.outcomes import Label

COMPARATORS = {
    "head_convex": "best linear head on the deployed features, fitted to the labelled pool under the true prior",
    "prior": "deployed model reweighted by the true prior",
    "finetune": "labelled fine-tuning from the method's and from the deployed model, the better of the two",
}
"""What losses are held against, by name."""

MEASURES = {
    "s_unc": "S̄_unc = Σ S_unc, mean over clients",
    "s_unc_sd": "its standard deviation over clients",
    "s_rep": "S̄_rep = Σ S_rep",
    "s_rep_sd": "its deviation",
    "s": "S̄_c = ½ (S̄_unc + S̄_rep)",
    "s_sd": "its deviation",
    "s_unc_corrected": "S̄_unc beyond the noise of finite batches (split halves)",
    "s_rep_corrected": "S̄_rep beyond that noise",
    "s_corrected": "S̄_c of the two",
    "s_corrected_sd": "its deviation",
    "v_l1": "V^L1 = Σ ‖Q^t − Q^{t−1}‖₁ of the true priors",
    "v_l1_sd": "its deviation",
    "v_cos": "V^cos = Σ (1 − cos(Q^t, Q^{t−1})) of the true priors",
    "v_cos_sd": "its deviation",
    "v_rep": "V_rep = Σ ½ (1 − cos(z̄^t, z̄^{t−1})) of the true mean features",
    "v_rep_sd": "its deviation",
    "unc_error": "|S̄_unc − V^cos|",
    "unc_error_bound": "K_cos Σ (ε_t + ε_{t−1})",
    "rep_error": "|S̄_rep − V_rep|",
    "rep_error_bound": "½ K_cos Σ (ε'_t + ε'_{t−1})",
    "sigma_min": "σ, smallest singular value of the confusion matrix",
    "loss": "mean cross-entropy on fresh labelled draws",
    "error": "mean 0-1 loss on the same draws",
    **{
        f"{name}{suffix}": meaning
        for comparator in COMPARATORS
        for name, suffix, meaning in (
            ("loss_", comparator, f"mean cross-entropy of {comparator}"),
            ("regret_", comparator, f"dynamic regret against {comparator}, mean over clients"),
            ("regret_", f"{comparator}_sd", "its deviation"),
            ("regret_01_", comparator, "the same in 0-1 loss"),
            ("interval_regret_", f"{comparator}_max", "largest mean regret within one period"),
            ("interval_regret_", f"{comparator}_sd", "deviation of that regret over the periods"),
        )
    },
    "rate": "mean learning rate η of the run",
    "gradient_norm": "G, largest gradient norm of a sample that was met",
    "loss_bound": "B, 99.9 of 100 samples have a smaller loss",
    "radius": "Γ = 2 max ‖θ_t − θ_0‖",
    "bound_optimisation": "2 (K G²/σ² + B²) η T at the run's rate",
    "bound_projection": "Γ²/η",
    "bound_adaptation": "4 (Γ + 1) √(B S̄ T/η)",
    "bound": "the sum of the three",
    "rate_star_order": "(S̄/T)^{1/3}: η* up to a constant",
    "rate_star": "η at which the three terms together are smallest",
    "bound_at_rate_star": "the sum there",
    "k_shared": "K_ψ, largest curvature met in the shared parameters",
    "k_personal": "K_φ, in the personal ones",
    "chi": "χ = K_ψφ / √(K_ψ K_φ)",
    "rho_squared": "ρ² of the gradient diversity",
    "delta_squared": "δ² of the gradient diversity",
    "ceiling": "ceiling of th:convergence on its η",
    "ceiling_shared": "the same for the rate of a step on ψ: ceiling / (K_ψ E)",
    "ceiling_personal": "and on φ: ceiling / (K_φ E)",
    "recovery_away": "steps until accuracy is back after ω jumped to 1; empty: not before the next jump",
    "changes_away": "how many such jumps",
    "recovery_back": "the same for jumps to 0",
    "changes_back": "how many",
    "observed_clients": "clients whose losses and features were measured",
    "observed_timesteps": "timesteps whose losses were measured, one at random from each of as many equal parts",
}
"""Every measure and what it is; the columns of theory.csv after those that say which run it is."""


@dataclass(frozen=True)
class TheoryResult:
    """One method and seed of one scenario."""

    labels: Mapping[str, Label]
    """What the suite calls it."""
    row: str
    """Its name in tables: the suite's, else the method's."""
    seed: int
    schedule: str
    num_timesteps: int
    measures: Mapping[str, float]
    """By their names in `MEASURES`; what a method does not have is absent."""

    def measure(self, name: str) -> float:
        """A measure, NaN where it is absent."""
        return self.measures.get(name, float("nan"))


def over_seeds(results: Sequence[TheoryResult]) -> list[TheoryResult]:
    """Means over the seeds of equal rows, schedules and horizons, in the order of the results."""
    groups: dict[tuple[str, str, int], list[TheoryResult]] = {}
    for one in results:
        groups.setdefault((one.row, one.schedule, one.num_timesteps), []).append(one)
    return [
        replace(
            found[0],
            measures={name: _mean(found, name) for name in MEASURES if any(name in one.measures for one in found)},
        )
        for found in groups.values()
    ]


def _mean(results: Sequence[TheoryResult], name: str) -> float:
    """A recovery that some seeds never saw counts for those that did."""
    return float(np.mean([one.measures[name] for one in results if name in one.measures]))


def theory_csv(results: Sequence[TheoryResult]) -> str:
    """All results as a table of comma-separated values; what is absent is empty."""
    own = ("row", "seed", "schedule", "num_timesteps")
    named = [name for name in dict.fromkeys(name for one in results for name in one.labels) if name not in own]
    measured = [name for name in MEASURES if any(name in one.measures for one in results)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*own, *named, *measured])
    for one in results:
        table.writerow(
            [
                *(getattr(one, name) for name in own),
                *(one.labels.get(name, "") for name in named),
                *(f"{one.measures[name]:.8g}" if name in one.measures else "" for name in measured),
            ]
        )
    return text.getvalue()
