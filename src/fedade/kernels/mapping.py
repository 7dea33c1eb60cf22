"""Whether code runs for one client, or is being mapped over several."""

from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters


def mapped() -> bool:
    """Whether a `vmap` is under way: tensors then stand for those of several clients."""
    return any(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())
