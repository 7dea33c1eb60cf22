"""Compiles the small kernels for a GPU on any machine: `python -m tests.kernels.compiling`, not interpreted."""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fedade.kernels import (
    attention_lanes,
    correction_lanes,
    folding_lanes,
    moment_lanes,
    norm_lanes,
    own_lanes,
    pixel_lanes,
    reductions,
    scaling_lanes,
    simplex,
    step_lanes,
)
from fedade.kernels.heads import HeadPlaces, Heads

HOPPER = GPUTarget("cuda", 90, 32)
MOST_SHARED = 227 * 1024
"""Bytes of its multiprocessors' memory that a program may have."""


def compiled(kernel: Any, types: dict[str, Any], **constants: Any) -> None:
    """Compile a kernel for arguments of these types, and those that are named for integers."""
    options = {name: constants.pop(name) for name in ("num_warps",) if name in constants}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    made = triton.compile(ASTSource(fn=kernel, signature=signature, constexprs=places), target=HOPPER, options=options)
    assert made.metadata.shared <= MOST_SHARED, kernel.__name__
    print(kernel.__name__)  # noqa: T201


def pointers(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"*{kind}")


def main() -> None:
    for kind in ("bf16", "fp32"):
        types = {"pixels": "*u8", **pointers("fp32", "mean", "deviation"), "result": f"*{kind}"}
        compiled(pixel_lanes._normalise, types, BLOCK=1024)
        images = pointers(kind, "images", "residual", "result") | pointers("fp32", "scale", "shift", "mean", "variance")
        compiled(scaling_lanes._scale, images | {"eps": "fp32"}, CHANNELS=32, RECTIFIED=True, BREADTH=32, ROWS=64)
        back = pointers(kind, "gradient", "output", "of_images", "of_residual", "back") | pointers("fp32", "sums")
        back |= images | {"eps": "fp32"}
        compiled(scaling_lanes._scale_back, back, PLANE=1024, CHANNELS=32, RECTIFIED=True, BREADTH=32, ROWS=64)
        back |= pointers("fp32", "of_mean", "of_variance")
        compiled(moment_lanes._measure_back, back, CHANNELS=32, BREADTH=32, ROWS=64)
        read = pointers(kind, "images") | pointers("fp32", "result")
        compiled(moment_lanes._moments, read, PLANE=1024, CHANNELS=32, CENTRED=kind == "bf16", BREADTH=32, ROWS=64)
    sums = pointers("fp32", "sums", "of_samples", "scale", "variance", "of_parameters", "of_statistics", "result")
    compiled(moment_lanes._of_batch, sums, CHANNELS=32, BREADTH=32, ROWS=64)
    for of_samples in (True, False):
        given = sums | {"eps": "fp32"}
        compiled(scaling_lanes._channel_gradients, given, OF_SAMPLES=of_samples, CHANNELS=32, BREADTH=32, ROWS=64)
    for kind in ("bf16", "fp32"):
        read = (*("*fp32",) * 6, *("i32",) * 6)
        folding = ("i32", "i32", *read, f"*{kind}", "*fp32", "fp32", *("i32",) * 6)
        all_layers = {"layers": (folding,) * folding_lanes.LAYERS_AT_ONCE}
        compiled(folding_lanes.fold_kernel, all_layers, LAYERS=folding_lanes.LAYERS_AT_ONCE, BLOCK=1024)
    unfolding = ("i32", "i32", *("*fp32",) * 5, *("i32",) * 5, *("*fp32",) * 6, "fp32", *("i32",) * 14)
    all_layers = {"layers": (unfolding,) * folding_lanes.LAYERS_AT_ONCE}
    compiled(folding_lanes.unfold_kernel, all_layers, LAYERS=folding_lanes.LAYERS_AT_ONCE, SPLITS=8, BLOCK=256)
    moved = {"tensors": (("i32", "i32", "*fp32", "*fp32", *("i32",) * 5),) * step_lanes.TENSORS_AT_ONCE}
    moved |= pointers("fp32", "rate", "result")
    compiled(step_lanes.step_kernel, moved, TENSORS=step_lanes.TENSORS_AT_ONCE, BLOCK=step_lanes.BLOCK)
    doubles = pointers("fp64", "start", "constant", "matrix", "result")
    compiled(simplex._iterations, doubles, SHARE=0.15, CLASSES=10, BLOCK=16)
    mixtures = pointers("fp64", "ratios", "counted", "start", "result")
    compiled(simplex._mixtures, mixtures, CLASSES=10, BLOCK_SAMPLES=64, BLOCK_CLASSES=16)
    of_layer = pointers(
        "fp32", "moments", "mean", "variance", "prior", "sizes", "samples", "squares", "widths", "class_means",
        "within", "scarcity", "shown", "found", "new_sizes", "new_samples", "trusts", "heard",
    )  # fmt: skip
    of_layer |= dict.fromkeys(("batch", "prior_share", "doubt", "new", "fewest", "least_variance"), "fp32")
    compiled(correction_lanes._correct, of_layer, RECOGNISES=True, CHANNELS=48, BLOCK=64, AT_ONCE=16)
    of_samples = pointers(
        "fp32", "moments", "mean", "variance", "before", "earlier", "usual", "shares", "found", "differences", "apart"
    )  # fmt: skip
    of_samples |= {"doubt": "fp32", "least_variance": "fp32", "counts": "fp32"}
    compiled(own_lanes._own, of_samples, CHANNELS=48, BLOCK=64, AT_ONCE=64)
    compiled(own_lanes._known, of_samples, CHANNELS=48, BLOCK=own_lanes.BLOCK)
    norm = (
        pointers("fp32", "tokens", "weight", "bias", "sums", "statistics")
        | pointers("bf16", "result", "gradient", "added")
        | {"eps": "fp32"}
    )
    compiled(norm_lanes._normalise, norm, CHANNELS=192, BLOCK=256, ROWS=16)
    compiled(norm_lanes._normalise_back, norm, CHANNELS=192, BLOCK=256, ROWS=16, BREADTH=32, HEIGHT=128, PER_PIECE=2048)
    for kind, tokens in (("bf16", 16), ("bf16", 128), ("fp32", 64)):
        places = [HeadPlaces(0, tokens * 576, first, 64, 576, 1) for first in (0, 192, 384)]
        heads = Heads(*places, 3, tokens, 64, 0.125)
        read = pointers(kind, "queries", "keys", "values", "result", "gradient", "of_queries", "of_keys", "of_values")
        for kernel in (attention_lanes._attend, attention_lanes._attend_back):
            compiled(kernel, read | {"scale": "fp32"}, **attention_lanes._constants(heads, "float32"))
    for kind in ("bf16", "fp32"):
        summed = pointers(kind, "rows") | pointers("fp32", "sums")
        compiled(reductions.sums_of_pieces, summed, CHANNELS=32, BLOCK_ROWS=128, BLOCK_CHANNELS=32)
    of_rows = pointers("fp32", "values", "sums")
    compiled(reductions.sums_of_rows, of_rows, ROWS=8, CHANNELS=32, BLOCK=256, AT_ONCE=8)


if __name__ == "__main__":
    main()
