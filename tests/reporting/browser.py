"""A real browser for tests: headless Chromium, spoken to through a pair of pipes.

Chromium's DevTools protocol needs no driver and no port when it runs over pipes: messages are JSON, each ended by a
zero byte, read from descriptor 3 and written to descriptor 4.
"""

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT = 120
"""Seconds; machines that run tests side by side can be slow."""

_OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank",
)  # fmt: skip

_SETTLED = """
new Promise((done) => {
  let timer;
  const frame = (then) => requestAnimationFrame(then);
  const end = () => { watch.disconnect(); frame(() => frame(() => done())); };
  const later = () => { clearTimeout(timer); timer = setTimeout(end, 150); };
  const watch = new MutationObserver(later);
  watch.observe(document, { subtree: true, childList: true, attributes: true });
  later();
})
"""
"""Comes true two frames after the document has been still for a while."""


def browser_path() -> str | None:
    """The browser of this machine, if it has one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class PageError(AssertionError):
    """A script of a page failed, or the browser did not answer."""


class Browser:
    """A browser with one page; remembers what the page asked of the network and what it complained about."""

    def __init__(self, folder: Path) -> None:
        path = browser_path()
        assert path is not None
        read_here, write_there = _pipe()
        read_there, write_here = _pipe()
        self._process = os.posix_spawn(
            path,
            [path, *_OPTIONS, f"--user-data-dir={folder}"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_there, 3),
                (os.POSIX_SPAWN_DUP2, write_there, 4),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
        )
        os.close(read_there)
        os.close(write_there)
        self._from, self._to = read_here, write_here
        os.set_blocking(self._from, False)
        self._number, self._received, self._session = 0, b"", None
        self._answers: dict[int, Any] = {}
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._from)
        os.close(self._to)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and wait for its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while number not in self._answers:
            if time.monotonic() > deadline:
                raise PageError(f"the browser did not answer {method}")
            self._listen()
        answer = self._answers.pop(number)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(
        self, page: Path | str, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> None:
        """Show a file or an address in a window of a size, and wait until it stands."""
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.complaints = []
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")  # so that what is waited for cannot be the page before
        self.requests = []
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")
        if scripts:
            self.settle()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise PageError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + TIMEOUT
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise PageError(f"never came true: {condition}")
            time.sleep(0.05)

    def settle(self) -> None:
        """Until what was asked of the page has been drawn."""
        self.evaluate(_SETTLED)

    def scroll_to(self, selector: str) -> None:
        """Bring an element into the window; plots are drawn only there."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        self.settle()

    def select(self, selector: str, value: str) -> None:
        """Choose an entry of a select element, or set a slider, as a reader would."""
        name = json.dumps(selector)
        self.evaluate(
            f"(() => {{ const one = document.querySelector({name}); one.value = {json.dumps(value)};"
            f" for (const kind of ['input', 'change']) one.dispatchEvent(new Event(kind, {{bubbles: true}})); }})()"
        )
        self.settle()

    def press(self, key: str) -> None:
        """A key on whatever has the focus."""
        code = {"Enter": 13, "ArrowRight": 39, "ArrowDown": 40, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def point_at(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Move the pointer over an element."""
        box: Mapping[str, float] = self.evaluate(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        )
        x, y = box["x"] + across * box["width"], box["y"] + down * box["height"]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(picture))

    def _listen(self) -> None:
        try:
            self._received += os.read(self._from, 1 << 20)
        except BlockingIOError:
            time.sleep(0.005)
        *whole, self._received = self._received.split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._note(message["method"], message.get("params", {}))

    def _note(self, method: str, said: Mapping[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(said["exceptionDetails"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(said["args"]))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of descriptors 3 and 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
