"""Which parameters clients share and which they keep: ψ and φ, by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedade.core.errors import FedadeError

Parameters = Mapping[str, Tensor]
"""All tensors of a network by name, its normalisation statistics included."""


@dataclass(frozen=True)
class Split:
    """Parameters whose name starts with one of `personal` stay with the client; all others are shared.

    >>> Split(personal=("head.",)).is_shared("body.conv.weight")
    True
    """

    personal: tuple[str, ...] = ("head.",)

    def is_shared(self, name: str) -> bool:
        return not name.startswith(self.personal)

    def shared(self, parameters: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in parameters.items() if self.is_shared(name)}

    def personal_part(self, parameters: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in parameters.items() if not self.is_shared(name)}

    def check(self, parameters: Parameters) -> None:
        """Refuse a split that leaves one of its sides empty."""
        if not self.personal_part(parameters) or not self.shared(parameters):
            side = "personal" if not self.personal_part(parameters) else "shared"
            raise FedadeError(
                f"split: personal={list(self.personal)} leaves no {side} parameter; "
                f"names begin with {sorted({name.split('.')[0] + '.' for name in parameters})}"
            )
