"""Who does the work of a suite: this process, several, or the machines of a Ray cluster."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from queue import Empty
from typing import Protocol, TypeVar

from fedade.core.errors import FedadeError
from fedade.core.optional import OptionalModule
from fedade.experiments.tracks import Report

ray = OptionalModule("ray", "ray")

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[T, Report], R]
"""What is done with one task; it reports on its way."""
Told = tuple[str, int, int]
"""One report."""


class ProcessLostError(FedadeError):
    """A process ended without a word: killed from outside, by the system's memory guard, or by a crash."""

    def __init__(self) -> None:
        super().__init__("the process that ran it ended abruptly, perhaps for want of memory; try fewer --jobs")


class Engine(Protocol):
    """Runs tasks in any order, and gives back each with its answer or with the loss of its process."""

    def __call__(
        self, work: Work[T, R], tasks: Sequence[T], report: Report
    ) -> Iterator[tuple[T, R | ProcessLostError]]: ...


def one_by_one(work: Work[T, R], tasks: Sequence[T], report: Report) -> Iterator[tuple[T, R | ProcessLostError]]:
    """In this process."""
    for task in tasks:
        yield task, work(task, report)


@dataclass
class Processes:
    """Several processes on this machine, kept from one call to the next."""

    jobs: int
    pool: "Pool | None" = None

    def __call__(
        self, work: Work[T, R], tasks: Sequence[T], report: Report
    ) -> Iterator[tuple[T, R | ProcessLostError]]:
        left = list(tasks)
        while left:
            lost = dict(enumerate(left))
            self.pool = self.pool or Pool(self.jobs)
            for number, answer in self.pool.answers(work, left, report):
                yield lost.pop(number), answer
            # A lost process takes its whole pool down. Tasks start in order, so the guilty one is among the first that
            # have no answer; alone, only the guilty one falls again.
            ahead = list(lost.values())
            if ahead:
                self.close()
            for suspect in ahead[: self.jobs + 1]:
                with closing(Pool(1)) as alone:
                    answers = dict(alone.answers(work, [suspect], report))
                yield suspect, answers.get(0, ProcessLostError())
            left = ahead[self.jobs + 1 :]

    def close(self) -> None:
        """End the processes, at once."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None


class Pool:
    """Processes that end with this one, however it ends."""

    def __init__(self, jobs: int) -> None:
        context = get_context("spawn")
        self._told: Queue[Told] = context.Queue()
        until_closed, self._leash = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(jobs, context, initializer=_join_pool, initargs=(self._told, until_closed))

    def answers(self, work: Work[T, R], tasks: Sequence[T], report: Report) -> Iterator[tuple[int, R]]:
        """Numbers of tasks and their answers as they come, until all are done or a process is lost."""
        try:
            with _deaf():
                numbers = {self._pool.submit(_telling, work, task): number for number, task in enumerate(tasks)}
        except BrokenProcessPool:  # a process was lost while there was nothing to do
            return
        pending = set(numbers)
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            _pass_on(self._told, report)
            for future in done:
                try:
                    answer = future.result()
                except BrokenProcessPool:
                    continue
                yield numbers[future], answer

    def close(self) -> None:
        """End the processes now, not when they are through with their tasks."""
        self._leash.close()
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class RayTasks:
    """The machines of a Ray cluster, which decides what runs where; the suite's folder must be on a disk they share."""

    device: str

    def __call__(
        self, work: Work[T, R], tasks: Sequence[T], report: Report
    ) -> Iterator[tuple[T, R | ProcessLostError]]:
        gpus = 1 if self.device.startswith("cuda") else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpus)(_silently)
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


def _silently(work: Work[T, R], task: T) -> R:
    return work(task, lambda _title, _done, _of: None)


def _own_variables() -> dict[str, str]:
    """Ray's processes have the environment of their node, not of the caller."""
    return {name: value for name, value in os.environ.items() if name.startswith("FEDADE_")}


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C, which reaches them all; the first one decides."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_TOLD: list["Queue[Told]"] = []
"""In a process of a pool: where it reports to. A queue cannot travel with a task."""


def _join_pool(told: "Queue[Told]", until_closed: Connection) -> None:
    told.cancel_join_thread()
    _TOLD.append(told)
    threading.Thread(target=_end_when_closed, args=(until_closed,), daemon=True).start()


def _end_when_closed(leash: Connection) -> None:
    """A runner that stops or is killed leaves no process behind; what they did so far is on disk."""
    leash.poll(None)
    os._exit(1)


def _telling(work: Work[T, R], task: T) -> R:
    return work(task, lambda title, done, of: _TOLD[-1].put((title, done, of)))


def _pass_on(told: "Queue[Told]", report: Report) -> None:
    try:
        while True:
            report(*told.get_nowait())
    except Empty:
        return


@contextmanager
def engine_of(name: str, jobs: int, device: str) -> Iterator[Engine]:
    """An engine by its name on the command line; its processes end with the context."""
    if name == "ray":
        if jobs > 1:
            raise FedadeError(f"--engine ray --jobs {jobs}: Ray decides how many cells run at once; leave --jobs out")
        with _connected():
            yield RayTasks(device)
    elif jobs > 1:
        with closing(Processes(jobs)) as processes:
            yield processes
    else:
        yield one_by_one


@contextmanager
def _connected() -> Iterator[None]:
    """The cluster that `RAY_ADDRESS` names, or one on this machine that ends with the context."""
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": _own_variables()})
    except ConnectionError as error:
        reason = str(error).splitlines()[0]
        raise FedadeError(f"--engine ray: no cluster answers ({reason}); start one with `ray start --head`") from error
    try:
        yield
    finally:
        ray.shutdown()
