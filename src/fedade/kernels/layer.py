"""How convolutions hang together, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """relu(conv(tensor[source]) + bias + tensor[residual]), the relu, or a gelu, and the residual if asked for.

    Tensors are numbered: first the inputs, then the output of every layer in turn.
    """

    source: int
    stride: int = 1
    residual: int | None = None
    relu: bool = True
    groups: int = 1
    dilation: int = 1
    gelu: bool = False

    @property
    def dense(self) -> bool:
        """Whether every output meets every channel, and pixels that lie side by side."""
        return self.groups == 1 and self.dilation == 1
