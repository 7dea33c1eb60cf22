"""Running the function of one client for many: `loop` and `vectorised`, which must agree."""

from fedade.client_map.loop import loop
from fedade.client_map.vectorised import Vectorised

__all__ = ["Vectorised", "loop"]
