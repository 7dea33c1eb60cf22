"""Work that ends at a chosen operation on files, by a kill or because the disk is full, and is then started again."""

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedade.core.errors import FedadeError

KILLED, REFUSED = 9, 2
LEFT_BEHIND = re.compile(r"\..*\.tmp|rows-.*|states.*|world\..*|failure\.json|.*\.corrupt-.*")
_OPERATIONS = ("open", "mkdir", "replace", "rename", "unlink", "rmdir", "fsync")


class Watch:
    """Counts operations on files below a folder, until one that kills the process or finds the disk full.

    A disk that is full stays so: whatever would write fails from there on.
    """

    def __init__(self, folder: Path, at: int | None, full: bool) -> None:
        self.folder, self.at, self.full = folder, at, full
        self.seen: list[str] = []

    def meet(self, operation: str, target: Any) -> None:
        """An operation that is about to be done."""
        where = Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fsdecode(target))
        if not where.is_relative_to(self.folder):
            return
        self.seen.append(f"{operation} {where.relative_to(self.folder)}")
        if self.at is None or len(self.seen) <= self.at:
            return
        if not self.full:
            os._exit(KILLED)
        if operation not in ("unlink", "rmdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function of `os`, watched."""

        def watched(target: Any, *rest: Any, **options: Any) -> Any:
            if name != "open" or (rest and rest[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                self.meet(name, target)
            return call(target, *rest, **options)

        return watched

    def open(self, target: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        """Python's own `open`, watched."""
        if not isinstance(target, int) and set(mode) & set("wax+"):
            self.meet("open", target)
        return _open(target, mode, *rest, **options)


_open = io.open


@contextmanager
def crashing(folder: Path, at: int | None, full: bool = False) -> Iterator[list[str]]:
    """A block whose operations on files are counted, and which ends at one of them; None: at none."""
    watch, originals = Watch(folder, at, full), {name: getattr(os, name) for name in _OPERATIONS}
    for name, call in originals.items():
        setattr(os, name, watch.before(name, call))
    io.open = watch.open
    try:
        yield watch.seen
    finally:
        for name, call in originals.items():
            setattr(os, name, call)
        io.open = _open


def ended_with(work: Callable[[], object], folder: Path, at: int, full: bool) -> int:
    """The exit code of a process of its own that does some work and ends at an operation; 0: it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with crashing(folder, at, full):
                work()
            code = 0
        except FedadeError:
            code = REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def survives(
    work: Callable[[Path], object],
    outcome: Callable[[Path], object],
    place: Path,
    full: bool,
    chosen: Callable[[int], Iterable[int]],
    again: Callable[[Path], object] | None = None,
) -> None:
    """Whatever operation on files ends the work, it is started again to the same outcome, and nothing is left behind.

    `chosen` says at which of so many operations; `again` starts it anew, if otherwise than before.
    """
    whole, stuck, others, left = place / "whole", [], [], []
    with crashing(whole, None) as operations:
        work(whole)
    assert len(operations) > 40
    expected = outcome(whole)
    for at in chosen(len(operations)):
        folder, where = place / f"crash-{at}", f"{at}: {operations[at]}"
        code = ended_with(lambda folder=folder: work(folder), folder, at, full)
        assert code == KILLED or (full and code in (0, REFUSED, 1)), (where, code)
        try:
            (again or work)(folder)
        except Exception as error:  # noqa: BLE001 - all of them are told together
            stuck.append(f"{where}: {error}")
            continue
        if outcome(folder) != expected:
            others.append(where)
        left += [f"{where}: {path.name}" for path in folder.rglob("*") if LEFT_BEHIND.fullmatch(path.name)]
    assert [stuck, others, left] == [[], [], []], f"stuck: {stuck}; another outcome: {others}; left: {left}"


def every(count: int) -> Iterable[int]:
    """All operations."""
    return range(count)


def some(stride: int) -> Callable[[int], Iterable[int]]:
    """The first dozen, before and around the claim, and each further one of a stride."""
    return lambda count: sorted({*range(12), *range(0, count, stride)})
