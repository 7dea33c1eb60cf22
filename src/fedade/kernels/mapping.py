"""Whether code runs for one client, or is being mapped over several, and how images then lie in memory."""

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters


def mapped() -> bool:
    """Whether a `vmap` is under way: tensors then stand for those of several clients."""
    return any(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())


def lies_by_pixel(images: Tensor) -> bool:
    """Whether the channels of a pixel lie side by side; images of several clients are not asked."""
    return (
        images.ndim == 4
        and not mapped()
        and not images.is_contiguous()
        and images.is_contiguous(memory_format=torch.channels_last)
    )
