import os
import shutil
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; must be set before torch is imported
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on a CPU; read when Triton is imported
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what runs in the background, and processes that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

from fedade.checking.trials import SMALL
from fedade.scenarios.building import build_scenario
from fedade.scenarios.settings import ScenarioSettings

from .helpers import ScenarioFactory
from .reporting.browser import NAMES, Browser, browser_path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Models that tests train are kept for the session, apart from the user's."""
    folder = str(tmp_path_factory.mktemp("cache"))
    os.environ["FEDADE_CACHE"] = folder
    return folder


@pytest.fixture(scope="session")
def scenario_factory(cache: str) -> ScenarioFactory:
    """Short scenarios on the default data: eight clients, four timesteps."""
    from pathlib import Path

    def make(seed: int = 0, **settings: object):
        return build_scenario(
            ScenarioSettings(**{**SMALL, **settings}), seed, "cpu", Path(cache), lambda done, of: None
        )

    return make


@pytest.fixture
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave no figures and no page, which take longer than a short run itself."""
    from fedade.products import run_folder

    monkeypatch.setattr(run_folder, "write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real browser, where this machine has one."""
    if browser_path() is None:
        pytest.skip(f"no browser on PATH ({', '.join(NAMES)}); install one, such as Debian's chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one
