"""What separates Fed-ADE+ from its relatives.

Its prior on top of theirs, true labels in TRIBE's rows, conditions that come back, and mixed domains.

python research/relatives.py --out FILE.csv --seed 100,101

The default network on the digits, published constants, nothing tuned.
"""

import argparse
import csv
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedade.client_map import Vectorised
from fedade.core.context import ClientContext
from fedade.core.method import Card, Method, Plan
from fedade.core.paths import cache_dir
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.core.tree import Tree
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.maths.priors.reweighting import reweight
from fedade.methods import METHODS
from fedade.methods.fed_ade_plus import regimes
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.tribe import Tribe, TribeClient
from fedade.scenarios.building import build_scenario
from fedade.scenarios.settings import ScenarioSettings

RETENTION = 0.9
"""Share of its past that a regime keeps: a stand-in for the signal, which would need features of every method."""

CASES = {
    "label shift": {"kind": "label", "schedule": "squ"},
    "both": {"kind": "both", "schedule": "squ"},
    "A-B-A-B": {"kind": "covariate", "stream": "returning"},
    "mixed domains": {"kind": "covariate", "stream": "mixed"},
}


class OnTopState(NamedTuple):
    """A method's own state, and the regimes of its predictions."""

    inner: Tree
    known: regimes.Regimes
    prior: Tensor


class PriorOnTop(Method[OnTopState]):
    """Another method whose predictions are corrected by the prior that Fed-ADE+ would read from them."""

    inner: Method

    @property
    def card(self) -> Card:
        return self.inner.card

    def begin(self, ctx: ClientContext) -> OnTopState:
        """Its own beginning, and the source prior."""
        prior = ctx.deployment.source_prior
        return OnTopState(self.inner.begin(ctx), regimes.no_regimes(3, prior), prior)

    def observe(self, ctx: ClientContext, state: OnTopState) -> tuple[OnTopState, Plan]:
        """Its own step, then the prior of what it predicts."""
        inner, plan = self.inner.observe(ctx, state.inner)
        deployment, after = ctx.deployment, replace(ctx, passes={}, truth=None)
        probabilities = self.inner.predict(after, inner)
        reading = regimes.read(state.known, probabilities, deployment.mean_prediction, deployment.source_prior)
        kept = torch.full_like(deployment.accuracy, RETENTION)
        return OnTopState(inner, regimes.learn(state.known, reading, len(ctx.inputs), kept), reading.prior), plan

    def predict(self, ctx: ClientContext, state: OnTopState) -> Tensor:
        """Its own answer, times the ratio of the priors."""
        return reweight(self.inner.predict(ctx, state.inner), state.prior, ctx.deployment.mean_prediction)


class TribeWithLabels(Tribe):
    """TRIBE whose class rows are given true labels."""

    @property
    def card(self) -> Card:
        return replace(super().card, oracle=True)

    def predict(self, ctx: ClientContext, state: TribeClient) -> Tensor:
        """True labels while it observes, its own answer elsewhere."""
        if ctx.truth is not None:
            return one_hot(ctx.labels, ctx.deployment.num_classes).to(ctx.deployment.source_prior.dtype)
        return super().predict(ctx, state)


def methods() -> dict[str, Method]:
    """Rows of the table."""
    plain: dict[str, Method] = {name: METHODS[name]() for name in ("tent", "rotta", "hybrid-ttn", "tribe", "unitta")}
    plain["tribe, true labels"] = TribeWithLabels()
    return {
        "source": METHODS["source"](),
        **plain,
        **{f"{name}, our prior": PriorOnTop(inner=method) for name, method in plain.items()},
        "fed-ade-plus, no prior in answers": FedAdePlus(reweighting=False),
        "fed-ade-plus": FedAdePlus(),
    }


def accuracy(method: Method, scenario: Scenario, seed: int) -> float:
    """Mean accuracy after adaptation."""
    clock = Clock(method, scenario, Rounds(1, 1.0), Seeds(seed), Maps(Vectorised(), Vectorised()))
    return float(np.mean([rows["accuracy_post"] for rows in clock.run(clock.beginning())]))


def main() -> None:
    """Run every row in every case, and write a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", default="100,101")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[dict[str, Any]] = []
    for seed in map(int, asked.seed.split(",")):
        for case, told in CASES.items():
            settings = ScenarioSettings(num_clients=18, num_timesteps=20, samples=30, **told)
            scenario = build_scenario(settings, seed, "cpu", cache_dir(), lambda *_: None)
            for row, method in methods().items():
                found = accuracy(method, scenario, seed)
                lines.append({
                    "suite": "relatives", "dataset": "digits", "kind": told["kind"], "schedule": settings.schedule,
                    "source": "uniform", "row": row, "method": row.partition(",")[0], "seed": seed, "case": case,
                    "accuracy_post": f"{found:.4f}",
                })  # fmt: skip
                print(seed, case, row, f"{found:.4f}", flush=True)
                write(asked.out, lines)


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    """All lines, in the order of the runs."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
