"""Launches of a timestep on a GPU, counted without one: what is small is computed for all layers at once."""

from collections import Counter

import pytest
from speed.launches import launches

pytest.importorskip("triton")

LAYERS = 19
"""Normalised ones of a ResNet-20."""


def test_only_kernels_of_ours_are_launched_for_each_layer():
    found = launches("import:speed.networks:resnet20", clients=3)
    assert found.total() < 1000
    ours = {name: sum(count for (_, known), count in found.items() if known == name) for name in ("_correct", "_scale")}
    assert ours == {"_correct": 3 * LAYERS, "_scale": 2 * LAYERS}, (
        "two passes, and what the first says to another prior"
    )
    of_method = {key: count for key, count in found.items() if key[0].startswith(("methods", "parts", "maths"))}
    assert max(of_method.values()) < LAYERS


def test_parameters_of_all_layers_are_folded_and_unfolded_at_once():
    found = launches("import:speed.networks:resnet20", clients=3, method="fed-ade")
    count = Counter[str]()
    for (_, name), times in found.items():
        count[name] += times
    assert count["window_outer_product"] == LAYERS * count["unfold_kernel"] > 0
    assert count["window_product"] > LAYERS * count["fold_kernel"] > 0


def test_weights_of_a_transformer_are_rounded_in_one_launch_a_pass():
    found = launches("import:speed.networks:vit_tiny", clients=3, method="fed-poe", size=32)
    count = Counter[str]()
    for (line, name), times in found.items():
        count["rounding" if line.startswith("kernels/packing") else name] += times
    layers = 1 + 4 * 12  # the patches, and 12 blocks
    assert count["window_product"] == layers * count["rounding"] > 0
    assert not count["fold_kernel"]
