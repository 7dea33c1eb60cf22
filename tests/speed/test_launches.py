"""Launches of a timestep on a GPU, counted without one: what is small is computed for all layers at once."""

from collections import Counter

import pytest
from speed.launches import launches

pytest.importorskip("triton")

LAYERS = 19
"""Normalised ones of a ResNet-20."""
SHORTCUTS = 2
"""Of these between its stages."""


def test_only_kernels_of_ours_are_launched_for_each_layer():
    found = launches("import:speed.networks:resnet20", clients=3).launches
    assert found.total() < 830
    ours = {name: sum(count for (_, known), count in found.items() if known == name) for name in ("_correct", "_scale")}
    assert ours == {"_correct": 3 * LAYERS, "_scale": 3 * LAYERS}, (
        "two passes, and what the first says to another prior; and the one that scores before"
    )
    of_method = {key: count for key, count in found.items() if key[0].startswith(("methods", "parts", "maths"))}
    assert max(of_method.values()) < LAYERS


def test_products_leave_the_moments_that_a_correction_asks_for():
    found = launches("import:speed.networks:resnet20", clients=3, size=32)
    names = {name for _, name in found.launches}
    assert {"window_product", "row_product", "sums_of_rows"} <= names
    assert "_moments" not in names, "no image is read again for them"
    folds = sum(count for (_, name), count in found.launches.items() if name == "fold_kernel")
    assert folds == 3 * (1 + SHORTCUTS), "all layers of a pass at once, but for those without a normalisation"


def test_parameters_of_all_layers_are_folded_and_unfolded_at_once():
    found = launches("import:speed.networks:resnet20", clients=3, method="fed-ade")
    count = Counter[str]()
    for (_, name), times in found.launches.items():
        count[name] += times
    assert count["window_outer_product"] == LAYERS * count["unfold_kernel"] > 0
    assert count["window_product"] > LAYERS * count["fold_kernel"] > 0


def test_weights_of_a_transformer_are_rounded_in_one_launch_a_pass():
    found = launches("import:speed.networks:vit_tiny", clients=3, method="fed-poe", size=32)
    count = Counter[str]()
    for (line, name), times in found.launches.items():
        count["rounding" if line.startswith("kernels/packing") else name] += times
    layers = 1 + 4 * 12  # the patches, and 12 blocks
    assert count["window_product"] == layers * count["rounding"] > 0
    assert not count["fold_kernel"]


def test_normalising_by_the_batch_and_back_is_six_kernels_a_layer():
    """Three passes, one of them with gradients: no image is read or written by plain PyTorch for it."""
    found = launches("import:speed.networks:resnet20", clients=3, method="tent")
    counts = Counter[str]()
    for (_, name), count in found.launches.items():
        counts[name] += count
    forward, back = ("_moments", "_of_batch", "_scale"), ("_scale_back", "_channel_gradients")
    assert {name: counts[name] for name in (*forward, *back, "_measure_back")} == {
        **dict.fromkeys(forward, 3 * LAYERS),
        **dict.fromkeys(back, LAYERS),
        "_measure_back": LAYERS - 1,  # nothing lies before the first layer that wants a gradient
    }
    ours = sum(count for (line, _), count in found.bytes.items() if line.startswith("kernels"))
    assert ours > 0.9 * found.bytes.total()
