"""Protocols by name: what comes when. Each is one file and one line here, and its name in `StreamName`."""

from collections.abc import Mapping

from fedade.scenarios.protocols.continual import ContinualStreams
from fedade.scenarios.protocols.correlated import CorrelatedStreams
from fedade.scenarios.protocols.mixed import MixedStreams
from fedade.scenarios.protocols.once import OnceStreams
from fedade.scenarios.protocols.own_pace import OwnPaceStreams
from fedade.scenarios.streams import ShiftStreams

STREAMS: Mapping[str, type[ShiftStreams]] = {
    "drift": ShiftStreams,
    "continual": ContinualStreams,
    "correlated": CorrelatedStreams,
    "mixed": MixedStreams,
    "once": OnceStreams,
    "own-pace": OwnPaceStreams,
}
