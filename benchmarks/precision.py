"""Accuracy of a method in float32 and in bf16, on the same streams, seed by seed.

python benchmarks/precision.py --preset digits-label --method fed-ade
python benchmarks/precision.py --preset cifar10-label --method fed-ade --device cuda

On a CPU bf16 is slow, but its products round as a GPU's do.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from fedade.experiments.tracks import build_clock

from fedade.core.paths import cache_dir
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import Experiment, experiment_from
from fedade.scenarios import build_scenario

PRECISIONS = ("float32", "bf16")


def accuracy(experiment: Experiment, method: str, seed: int, device: str) -> float:
    """Mean over clients and timesteps, on the batch after adapting to it, in percent."""
    scenario = build_scenario(experiment.scenario, seed, device, cache_dir(), lambda _done, _of: None)
    own = replace(scenario, deployment=scenario.deployment.computing_in(experiment.federation.precision))
    federation = Federation(own, Seeds(seed), experiment.build_method(method))
    clock = build_clock(experiment, [federation], device, Path("unused"))
    return 100 * float(np.mean([rows["accuracy_post"].mean() for rows in clock.run(clock.beginning())]))


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="digits-label")
    parser.add_argument("--method", default="fed-ade")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--timesteps", type=int)
    options = parser.parse_args()
    print("| seed |", " | ".join(PRECISIONS), "| difference |", flush=True)
    print("|---" * (len(PRECISIONS) + 2) + "|")
    for seed in range(options.seeds):
        found = []
        for precision in PRECISIONS:
            settings = settings_from(options.preset)
            settings["federation"]["precision"] = precision
            if options.timesteps:
                settings["scenario"]["num_timesteps"] = options.timesteps
            found.append(accuracy(experiment_from(settings), options.method, seed, options.device))
        print(f"| {seed} | {found[0]:.2f} | {found[1]:.2f} | {found[1] - found[0]:+.2f} |", flush=True)


if __name__ == "__main__":
    main()
