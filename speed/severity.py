"""Accuracy of a deployed model by corruption and severity, on clean test images that are corrupted here.

python speed/severity.py --preset cifar10-label --images 2000 --device cuda
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from fedade.core.paths import cache_dir
from fedade.data.corruptions.registry import CORRUPTIONS, MAX_SEVERITY, corrupt
from fedade.data.registry import load
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from
from fedade.scenarios.building import build_deployment


def main() -> None:
    """Print a Markdown table."""
    words = argparse.ArgumentParser()
    words.add_argument("--preset", default="cifar10-label")
    words.add_argument("--images", type=int, default=2000)
    words.add_argument("--device", default="cpu")
    words.add_argument("--data-dir", type=Path)
    said = words.parse_args()
    settings = settings_from(said.preset)
    settings["scenario"]["data_dir"] = said.data_dir
    scenario = experiment_from(settings).scenario
    deployment = build_deployment(scenario, said.device, cache_dir(), lambda _done, _of: None)
    test = load(scenario.dataset, said.data_dir).test
    images = np.ascontiguousarray(np.moveaxis(np.array(test.inputs[: said.images]), 1, -1))
    labels = torch.from_numpy(test.labels[: said.images])

    print("| corruption | clean |", " | ".join(str(severity) for severity in range(1, MAX_SEVERITY + 1)), "|")
    print("|---" * (MAX_SEVERITY + 2) + "|")
    for name in CORRUPTIONS:
        row = []
        for severity in range(MAX_SEVERITY + 1):
            seen = np.ascontiguousarray(np.moveaxis(corrupt(images, name, severity), -1, 1))
            with torch.no_grad():
                predicted = deployment.network.logits(deployment.parameters, torch.from_numpy(seen).to(said.device))
            row.append(f"{100 * (predicted.argmax(-1).cpu() == labels).double().mean():.1f}")
        print(f"| {name} |", " | ".join(row), "|")


if __name__ == "__main__":
    main()
