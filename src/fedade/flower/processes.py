"""Processes that are certain to end, with all that they started."""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fedade.core.errors import FedadeError

GRACE_SECONDS = 8.0
RETRY_SECONDS = 3.0
_MARK = "FEDADE_PROCESS"
_PROC = Path("/proc")


@dataclass
class Process:
    """A program, whatever it starts, and the file that all of them write to."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    _mark: str = field(default_factory=lambda: secrets.token_hex(12))
    _popen: "subprocess.Popen[bytes] | None" = None

    @property
    def pid(self) -> int:
        if self._popen is None:
            raise ValueError(f"{self.name} was not started")
        return self._popen.pid

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603
                list(self.command),
                env={**self.environment, _MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    def ended(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return None if self._popen is None else self._popen.poll()

    def family(self) -> list[int]:
        """The program and all that it started and that still runs, also what outlived it or left its group."""
        if self._popen is None:
            return []
        if not _PROC.is_dir():
            self._popen.poll()  # reaps it, or its group would seem to live on
            return _group(self._popen.pid)
        found = _marked(self._mark)
        # While a process ends it already has no environment and not yet an exit code.
        ending = self._popen.poll() is None and self.pid not in found
        return [self.pid, *found] if ending else found

    def ask_to_end(self) -> None:
        """Send the program a SIGTERM; it tells its own."""
        if self.ended() is None and self._popen is not None:
            self._popen.terminate()

    def end(self, deadline: float) -> None:
        """Wait for the whole family until the deadline, then kill what is left of it."""
        while self.family() and time.monotonic() < deadline:
            time.sleep(0.1)
        while family := self.family():
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def last_words(self, lines: int = 3) -> str:
        """The end of its log, in one line."""
        words = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return " | ".join(line.strip() for line in words[-lines:])


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """In a new process: be sent a SIGTERM when the one that started it is gone, even if that was killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _marked(mark: str) -> list[int]:
    """Processes with the mark in their environment; Flower gives some of its children groups of their own."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile, or is another user's
                continue
    return found


def _group(leader: int) -> list[int]:
    """A group, by the negative number of its leader, as long as anyone lives; where no list of processes is to read."""
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return []
    return [-leader]


@dataclass
class Supervised:
    """A program that is started again when it is killed, as a service manager would."""

    process: Process
    tried: float = 0.0

    def revive(self) -> None:
        """Start it if it was killed; an end of its own accord is an error."""
        code, now = self.process.ended(), time.monotonic()
        if code is None or now - self.tried < RETRY_SECONDS:
            return
        if code >= 0:
            words = self.process.last_words()
            raise FedadeError(f"{self.process.name} ended with code {code}: {words}; log: {self.process.log}")
        self.tried = now
        self.process.end(now)
        self.process.start()


@dataclass
class ProcessGroup:
    """A set of processes that all end when the block does, whatever ends it."""

    running: list[Process] = field(default_factory=list)

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def start(self, process: Process) -> Process:
        self.running.append(process)
        process.start()
        return process

    def end_all(self) -> None:
        for process in reversed(self.running):
            process.ask_to_end()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in reversed(self.running):
            process.end(deadline)
        self.running.clear()


@contextmanager
def ended_by_signals(as_interrupt: bool = False) -> Iterator[None]:
    """SIGTERM, Ctrl-C, or a terminal that goes away, end the block in order, so that what it has begun ends too.
    `as_interrupt`: all of them as Ctrl-C does; else with the exit code of the signal."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt if as_interrupt else SystemExit(128 + number)

    numbers = [number for name in ("SIGTERM", "SIGINT", "SIGHUP") if (number := getattr(signal, name, None))]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def flower_program(name: str) -> str:
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise FedadeError(f"{name} is not installed beside {sys.executable}; pip install 'fedade[flower]'")
    return str(path)
