"""Running the function of one client for many: `loop`, `side_by_side` and `Vectorised`, which must agree."""

from fedade.client_map.loop import loop
from fedade.client_map.side_by_side import side_by_side
from fedade.client_map.vectorised import Vectorised

__all__ = ["Vectorised", "loop", "side_by_side"]
