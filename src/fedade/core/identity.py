"""Names for contents: two share one only if they are the same."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def digest(*parts: bytes | NDArray[Any]) -> str:
    """Twenty-four characters that differ between different contents."""
    whole = hashlib.blake2b(digest_size=12)
    for part in parts:
        whole.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B"))
    return whole.hexdigest()


def tensor_bytes(tensors: "Mapping[str, Tensor]") -> Iterable[bytes | NDArray[Any]]:
    """Names, types, shapes and values of tensors, in the order of their names."""
    for name, value in sorted(tensors.items()):
        yield f"{name} {value.dtype} {list(value.shape)}".encode()
        yield value.detach().cpu().contiguous().view(-1).numpy()
