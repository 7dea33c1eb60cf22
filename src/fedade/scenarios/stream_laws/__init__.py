"""Laws of streams by name: what comes when. Each is one file and one line here, and its name in `StreamName`."""

from collections.abc import Mapping

from fedade.scenarios.stream_laws.continual import ContinualStreams
from fedade.scenarios.stream_laws.correlated import CorrelatedStreams
from fedade.scenarios.stream_laws.late import LateStreams
from fedade.scenarios.stream_laws.markov import MarkovStreams
from fedade.scenarios.stream_laws.mixed import MixedStreams
from fedade.scenarios.stream_laws.once import OnceStreams
from fedade.scenarios.stream_laws.own_pace import OwnPaceStreams
from fedade.scenarios.streams import ShiftStreams

STREAMS: Mapping[str, type[ShiftStreams]] = {
    "drift": ShiftStreams,
    "continual": ContinualStreams,
    "correlated": CorrelatedStreams,
    "mixed": MixedStreams,
    "once": OnceStreams,
    "own-pace": OwnPaceStreams,
    "late": LateStreams,
    "markov": MarkovStreams,
}
