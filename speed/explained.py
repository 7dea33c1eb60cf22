"""How much of each layer's per-sample means the classes explain, of a preset's deployed model.

python speed/explained.py cifar10-c [--device cuda]
"""

import argparse

from fedade.core.paths import cache_dir
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from
from fedade.methods.fed_ade_plus.class_moments import explained_share, plain_layers, reference_moments
from fedade.scenarios.building import build_deployment


def main() -> None:
    """Print a row per layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    scenario = experiment_from(settings_from(options.preset)).scenario
    deployment = build_deployment(scenario, options.device, cache_dir(), lambda _done, _of: None)
    moments, plain = reference_moments(deployment), plain_layers(deployment)
    for layer, both in moments.items():
        first, second = explained_share(both).tolist()
        shares = f"{first:.2f} of the means, {second:.2f} of the squares"
        print(f"{layer}: {shares}{', corrected in pass 1' if layer in plain else ''}")


if __name__ == "__main__":
    main()
