"""What is given to others: a source archive that holds all, and a wheel that works in an environment of its own."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(distributions):
    (wheel,) = distributions.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    kept = {str(path.relative_to(source)) for path in (source / "fedade").rglob("*") if path.is_file()}
    assert held == {name for name in kept if "__pycache__" not in name}


def test_the_source_archive_holds_what_a_wheel_is_made_of(distributions):
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/fedade/__init__.py", "src/fedade/py.typed"} <= names


def test_the_wheel_works_in_an_environment_of_its_own(distributions, tmp_path):
    """Dependencies are those that are installed here, so that no network is needed; the package is the wheel's."""
    (wheel,) = distributions.glob("*.whl")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"FEDADE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def output(*words: str | Path) -> str:
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    programs = tmp_path / "venv" / "bin"
    output(sys.executable, "-m", "venv", "venv")
    output(programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n"
    )
    assert str(site) in output(programs / "python", "-P", "-c", "import fedade; print(fedade.__file__)")
    small = ("scenario.num_clients=4", "scenario.num_timesteps=2", "scenario.pretraining.epochs=1")
    output(
        programs / "fedade",
        "run",
        "--method",
        "fed-ade-plus",
        *(word for change in small for word in ("--set", change)),
    )
    assert list((tmp_path / "runs").glob("*/report.html"))
