"""Laws of streams by name: what comes when. Each is one file and one line here, and its name in `StreamName`."""

from collections.abc import Mapping

from fedade.scenarios.stream_laws.continual import ContinualStreams, MixedStreams, ReturningStreams
from fedade.scenarios.stream_laws.laid_out import CorrelatedStreams
from fedade.scenarios.stream_laws.markov import MarkovStreams
from fedade.scenarios.stream_laws.once import OnceStreams
from fedade.scenarios.stream_laws.own_pace import LateStreams, OwnPaceStreams
from fedade.scenarios.streams import ShiftStreams

STREAMS: Mapping[str, type[ShiftStreams]] = {
    "drift": ShiftStreams,
    "continual": ContinualStreams,
    "returning": ReturningStreams,
    "correlated": CorrelatedStreams,
    "mixed": MixedStreams,
    "once": OnceStreams,
    "own-pace": OwnPaceStreams,
    "late": LateStreams,
    "markov": MarkovStreams,
}
