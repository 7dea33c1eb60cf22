"""A cache and a search path of each test's own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's own data or cache."""
    home = tmp_path / "home"
    (home / "elsewhere").mkdir(parents=True)
    monkeypatch.setenv("FEDADE_CACHE", str(home / "cache"))
    monkeypatch.delenv("FEDADE_DATA", raising=False)
    monkeypatch.chdir(home / "elsewhere")
    return home


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder
