"""Accuracy of a method in float32 and in bf16, on the same streams, seed by seed.

python speed/precision.py --preset digits-label --method fed-ade
python speed/precision.py --preset cifar10-label --method fed-ade --constants KEY.tuning.json --device cuda

Constants are those of the method's settings, or with `--constants` those that a calibration has stored (`fedade tune`).
On a CPU bf16 is slow, but its products round as a GPU's do.
"""

import argparse
from pathlib import Path

import numpy as np

from fedade.core.paths import cache_dir
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from, merged
from fedade.runner.clocks import build_clock
from fedade.scenarios.building import build_testbed
from fedade.tuning.trials import Tuning, fitted

PRECISIONS = ("float32", "bf16")


def accuracy(options: argparse.Namespace, seed: int, precision: str) -> float:
    """Mean over clients and timesteps, on the batch after adapting to it, in percent."""
    own = {
        "methods": [options.method],
        "seeds": [seed],
        "execution": {"device": options.device, "precision": precision},
        "scenario": {"num_timesteps": options.timesteps} if options.timesteps else {},
    }
    experiment = experiment_from(merged(settings_from(options.preset), own))
    scenario = experiment.scenario
    testbed = build_testbed(scenario, options.device, cache_dir(), lambda _done, _of: None, precision)
    method = experiment.build_method()
    if options.constants:
        method = fitted(method, Tuning.load(options.constants))
    federation = Federation(testbed.scenario(scenario.schedule, seed), Seeds(seed), method)
    clock = build_clock(experiment, [federation], Path("unused"))
    return 100 * float(np.mean([rows["accuracy_post"].mean() for rows in clock.run(clock.beginning())]))


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="digits-label")
    parser.add_argument("--method", default="fed-ade")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--timesteps", type=int)
    parser.add_argument("--constants", type=Path)
    options = parser.parse_args()
    print("| seed |", " | ".join(PRECISIONS), "| difference |", flush=True)
    print("|---" * (len(PRECISIONS) + 2) + "|")
    for seed in range(options.seeds):
        exact, rounded = (accuracy(options, seed, precision) for precision in PRECISIONS)
        print(f"| {seed} | {exact:.2f} | {rounded:.2f} | {rounded - exact:+.2f} |", flush=True)


if __name__ == "__main__":
    main()
