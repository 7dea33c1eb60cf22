"""Who does the work: this process, several, or the machines of a Ray cluster."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import Any, Protocol, TypeVar

from fedade.core.errors import DeviceLostError, FedadeError, first_line
from fedade.core.events import CellInfo, Listener, RowsOnDemand
from fedade.core.importing import OptionalModule
from fedade.runner.leash import on_leash
from fedade.runner.work import Worker
from fedade.scenarios.own_testbed import OwnTestbed

ray = OptionalModule("ray", "ray")

T = TypeVar("T")
R = TypeVar("R")
WorkerFunction = Callable[[Worker, T], R]
"""What a process's worker does with one task."""
Event = tuple[str, tuple[Any, ...]]
"""The name of a listener's method, and what it is called with."""


class ProcessLostError(FedadeError):
    """A process ended without a word: killed from outside, by the system's memory guard, or by a crash."""

    def __init__(self) -> None:
        super().__init__("the process that ran it ended abruptly, perhaps for want of memory; try fewer --jobs")


class Executor(Protocol):
    """Runs tasks in any order, and gives back each with its answer or with the loss of its process."""

    def __call__(self, work: WorkerFunction[T, R], tasks: Sequence[T]) -> Iterator[tuple[T, R | ProcessLostError]]: ...


@dataclass
class InProcess:
    """One task after the other in this process."""

    worker: Worker

    def __call__(self, work: WorkerFunction[T, R], tasks: Sequence[T]) -> Iterator[tuple[T, R | ProcessLostError]]:
        for task in tasks:
            yield task, work(self.worker, task)


@dataclass
class Processes:
    """Several processes on this machine, kept from one call to the next."""

    jobs: int
    listener: Listener
    pool: "Pool | None" = None

    def __call__(self, work: WorkerFunction[T, R], tasks: Sequence[T]) -> Iterator[tuple[T, R | ProcessLostError]]:
        left = list(tasks)
        while left:
            lost = dict(enumerate(left))
            self.pool = self.pool or Pool(self.jobs, self.listener)
            for number, answer in self.pool.answers(work, left):
                yield lost.pop(number), answer
            # A lost process takes its whole pool down. Tasks start in order, so the guilty one is among the first that
            # have no answer; alone, only the guilty one falls again.
            ahead = list(lost.values())
            if ahead:
                self.close()
            for suspect in ahead[: self.jobs + 1]:
                with closing(Pool(1, self.listener)) as alone:
                    answers = dict(alone.answers(work, [suspect]))
                yield suspect, answers.get(0, ProcessLostError())
            left = ahead[self.jobs + 1 :]

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None


class Pool:
    """Processes that end with this one, however it ends, and send their events to its listener."""

    def __init__(self, jobs: int, listener: Listener) -> None:
        context = get_context("spawn")
        self._listener = listener
        # Not `Queue`, whose thread in the other process may still hold events of a task when its answer has come.
        self._sent: SimpleQueue[Event] = context.SimpleQueue()
        self._received: queue.SimpleQueue[Event] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(self._sent, self._received), daemon=True).start()
        until_closed, self._leash = context.Pipe(duplex=False)
        begin = (until_closed, __name__, _join_pool.__name__, self._sent, listener.wants_rows)
        self._pool = ProcessPoolExecutor(jobs, context, initializer=on_leash, initargs=begin)

    def answers(self, work: WorkerFunction[T, R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Numbers of tasks and their answers as they come, until all are done or a process is lost."""
        try:
            with _without_ctrl_c():
                numbers = {self._pool.submit(_in_pool, work, task, number): number for number, task in enumerate(tasks)}
        except BrokenProcessPool:  # a process was lost while there was nothing to do
            return
        pending, heard_to_the_end = set(numbers), set[int]()
        while pending:
            done, pending = wait(pending, timeout=0.05, return_when=FIRST_COMPLETED)
            heard_to_the_end |= self._hear()
            for future in done:
                try:
                    answer = future.result()
                except BrokenProcessPool:
                    continue
                while numbers[future] not in heard_to_the_end:
                    heard_to_the_end |= self._hear(wait=True)
                yield numbers[future], answer

    def close(self) -> None:
        """End the processes now, not when they are through with their tasks."""
        self._leash.close()
        self._pool.shutdown(cancel_futures=True)

    def _hear(self, wait: bool = False) -> set[int]:
        """Pass on what the processes have sent; the numbers of the tasks that end in it."""
        ended = set()
        while wait or not self._received.empty():
            name, arguments = self._received.get()
            wait = False
            if name == _END:
                ended.add(arguments[0])
                continue
            if name == "on_rows":
                cell, timestep, rows = arguments
                arguments = (cell, timestep, lambda rows=rows: rows)
            getattr(self._listener, name)(*arguments)
        return ended


_END = "end of a task"


def _receive(sent: "SimpleQueue[Event]", received: "queue.SimpleQueue[Event]") -> None:
    """Take in events at once: a listener that takes its time must not hold up whoever computes."""
    with suppress(EOFError, OSError):
        while True:
            received.put(sent.get())


@dataclass
class Sender(Listener):
    """Sends the events of a process to the one that started it; rows only where somebody there reads them."""

    events: "SimpleQueue[Event]"
    wants_rows: bool = field(default=False)

    def on_preparation(self, *what: Any) -> None:
        self.events.put(("on_preparation", what))

    def on_start(self, *what: Any) -> None:
        self.events.put(("on_start", what))

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        self.events.put(("on_rows", (cell, timestep, rows() if self.wants_rows else {})))


_WORKER: list[Worker] = []
"""In a process of a pool or of Ray: its worker, which stays from one task to the next and cannot travel with them."""


def _join_pool(events: "SimpleQueue[Event]", wants_rows: bool) -> None:
    _WORKER.append(Worker(Sender(events, wants_rows)))


def _in_pool(work: WorkerFunction[T, R], task: T, number: int) -> R:
    worker = _WORKER[-1]
    answer = _while_the_device_answers(work, worker, task)
    if isinstance(worker.listener, Sender):
        worker.listener.events.put((_END, (number,)))
    return answer


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes that are started here never get Ctrl-C, which reaches them all; the first one decides."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class RayTasks:
    """The machines of a Ray cluster, which decides what runs where; the store must be on a disk that they share.
    Listeners hear how cells end, not how they come along."""

    on_gpu: bool

    def __call__(self, work: WorkerFunction[T, R], tasks: Sequence[T]) -> Iterator[tuple[T, R | ProcessLostError]]:
        remote = ray.remote(num_cpus=1, num_gpus=int(self.on_gpu))(_silently)
        pending = {remote.remote(work, task): task for task in tasks}
        while pending:
            (ready, *_), _ = ray.wait(list(pending), num_returns=1)
            task = pending.pop(ready)
            try:
                answer = ray.get(ready)
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError:
                yield task, ProcessLostError()
            else:
                yield task, answer


def _silently(work: WorkerFunction[T, R], task: T) -> R:
    if not _WORKER:
        _WORKER.append(Worker(Listener()))
    return _while_the_device_answers(work, _WORKER[-1], task)


def _while_the_device_answers(work: WorkerFunction[T, R], worker: Worker, task: T) -> R:
    """What a worker does with a task. A process whose GPU failed ends at once, and others do the rest."""
    try:
        return work(worker, task)
    except DeviceLostError:
        os._exit(1)


@contextmanager
def executor_of(
    name: str, jobs: int, on_gpu: bool, listener: Listener, testbed: OwnTestbed | None = None
) -> Iterator[Executor]:
    """An executor by its name on the command line; its processes end with the context. A testbed that the user made
    stays in this process."""
    if name == "ray":
        if jobs > 1:
            raise FedadeError(f"--engine ray --jobs {jobs}: Ray decides how many cells run at once; leave --jobs out")
        with _connected():
            yield RayTasks(on_gpu)
    elif jobs > 1:
        with closing(Processes(jobs, listener)) as processes:
            yield processes
    else:
        yield InProcess(Worker(listener, brought=testbed))


@contextmanager
def _connected() -> Iterator[None]:
    """The cluster that `RAY_ADDRESS` names, or one on this machine that ends with the context."""
    # Ray's processes have the environment of their node, not of the caller.
    own = {name: value for name, value in os.environ.items() if name.startswith("FEDADE_")}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": own})
    except ConnectionError as error:
        raise FedadeError(
            f"--engine ray: no cluster answers ({first_line(error)}); start one with `ray start --head`"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
