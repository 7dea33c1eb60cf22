"""How the steps of a timestep are run: directly, or as CUDA graphs."""

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedade.core import tree
from fedade.core.errors import first_line
from fedade.core.tree import Tree, leaves
from fedade.engine.steps import Steps

Step = Callable[..., Tree]
_REHEARSED: set[object] = set()
"""Kinds of work that this process has compiled for."""


@dataclass(frozen=True)
class Running:
    """The steps of all federations, `[F, ...]`, during one run."""

    score: Step
    observe: Step
    exchange: Step
    personalise: Step
    end_timestep: Callable[[], None]
    """Called after each timestep: keeps the host from running far ahead of the device."""


def _over_federations(steps: Steps, wrapped: Callable[[Step], Step], end_timestep: Callable[[], None]) -> Running:
    def over(step: Step, finish: Callable[[Tree], Tree] = lambda results: results) -> Step:
        return wrapped(lambda *arguments: finish(steps.maps.federations(step, *arguments)))

    # Copied, because a map may return views of common memory, and participants write their rows.
    observe = over(steps.observe, tree.copied)
    return Running(over(steps.score), observe, over(steps.exchange), over(steps.personalise), end_timestep)


@dataclass(frozen=True)
class Direct:
    """Operation by operation."""

    def begin(self, steps: Steps) -> Running:
        return _over_federations(steps, lambda step: step, lambda: None)

    def rehearse(self, kind: object, work: Callable[[], object]) -> None:
        """Prepare for work of a kind, which is gone through for nothing; here nothing has to be prepared."""


@dataclass(frozen=True)
class Captured:
    """As CUDA graphs: a step runs directly once, is recorded at its second call, and is replayed from then on.
    Launching a step operation by operation takes longer than computing it. Where a step cannot be recorded (it reads a
    value back, say), it goes on running directly, with one warning."""

    compile_ahead: Callable[[Callable[[], object]], None] = lambda _work: None
    """Given work, compiles what it will run."""

    def begin(self, steps: Steps) -> Running:
        written: set[int] = set()
        events: deque[torch.cuda.Event] = deque()

        def end_timestep() -> None:
            # The host stays two timesteps ahead at most: far enough that the device never waits, near enough that
            # progress means something.
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            events.append(event)
            if len(events) > 2:
                events.popleft().synchronize()

        return _over_federations(steps, lambda step: _Recorded(step, written), end_timestep)

    def rehearse(self, kind: object, work: Callable[[], object]) -> None:
        """Compile for work, unless this process has done so for its kind."""
        if kind not in _REHEARSED:
            _REHEARSED.add(kind)
            self.compile_ahead(work)


Execution = Direct | Captured
"""How a run's steps are executed."""


MOST_RECORDINGS = 4
"""Of one step. Each has memory of its own: where clients join one after the other, a recording for every number of them
would fill the device."""


@dataclass
class _Graph:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    results: Tree
    given: list[tuple[Tensor, int] | None]
    """What was last copied to each input, with its version, so that what has not changed is not copied again."""


@dataclass
class _Recorded:
    """A step that is replayed. What it returns stays valid until its next call."""

    step: Step
    written: set[int]
    """Addresses that the replays of a run write to."""
    graphs: dict[object, _Graph | None] = field(default_factory=dict)
    """Recordings by structure and shapes of the arguments; None once they were met."""
    direct: bool = False
    """Recording failed."""

    def __call__(self, *arguments: Tree) -> Tree:
        flat, structure = pytree.tree_flatten(arguments)
        shapes = (structure, tuple((leaf.shape, leaf.dtype) for leaf in flat))
        if self.direct or shapes not in self.graphs:
            self.graphs.setdefault(shapes, None)
            results = self.step(*arguments)
            self.direct |= not leaves(results)  # nothing to record
            return results
        known = self.graphs.pop(shapes)
        if known is None:
            known = self._record(flat, structure)
            if known is None:
                return self.step(*arguments)
        self.graphs[shapes] = known  # the last in use stands last
        recorded = [kind for kind, graph in self.graphs.items() if graph is not None]
        for longest_unused in recorded[:-MOST_RECORDINGS]:
            del self.graphs[longest_unused]
        self._fill(known, flat)
        known.graph.replay()
        return known.results

    def _record(self, flat: list[Tensor], structure: pytree.TreeSpec) -> _Graph | None:
        graph = torch.cuda.CUDAGraph()
        inputs = [leaf.clone() for leaf in flat]
        torch.cuda.synchronize()
        try:
            # In memory of its own: results of one graph must survive the replay of another.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                results = self.step(*pytree.tree_unflatten(inputs, structure))
        except (RuntimeError, NotImplementedError) as error:
            self.direct = True
            cause: BaseException = error
            while cause.__context__ is not None:  # ending a recording fails once more, and says less
                cause = cause.__context__
            warnings.warn(
                f"a step runs without a CUDA graph, and slower: {first_line(cause)}", RuntimeWarning, stacklevel=2
            )
            return None
        self.written |= {leaf.data_ptr() for leaf in leaves(results)}
        return _Graph(graph, inputs, results, [None] * len(inputs))

    def _fill(self, known: _Graph, flat: list[Tensor]) -> None:
        sources, targets = [], []
        for place, (leaf, target) in enumerate(zip(flat, known.inputs, strict=True)):
            if leaf.data_ptr() == target.data_ptr():
                continue
            # A replay writes without counting versions: what it wrote must always be copied.
            steady = leaf.data_ptr() not in self.written
            before = known.given[place]
            if steady and before is not None and before[0] is leaf and before[1] == leaf._version:
                continue
            known.given[place] = (leaf, leaf._version) if steady else None
            sources.append(leaf)
            targets.append(target)
        tree.copy_all(sources, targets)
