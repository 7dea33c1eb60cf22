"""In which precision a network multiplies; parameters, statistics, features and logits are float32 throughout."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from fedade.core.importing import OptionalModule

torch: Any = OptionalModule("torch")

Precision = Literal["float32", "tf32", "bf16"]
"""`tf32` and `bf16` need a GPU; bf16 also stores activations in two bytes."""


def set_multiplication(precision: Precision) -> None:
    """Tell PyTorch's own matrix products and convolutions; they would round to TF32 in convolutions by default."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = precision != "float32"


@contextmanager
def without_autocast() -> Iterator[None]:
    """In the precisions above, also where a caller computes under `torch.autocast`: it would round estimates, too."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield
