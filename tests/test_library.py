"""What `import fedade` promises."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml

import fedade


def test_every_example_in_a_docstring_is_true(cache):
    tried = 0
    for module in pkgutil.walk_packages(fedade.__path__, "fedade."):
        if module.name == "fedade.__main__":
            continue
        result = doctest.testmod(importlib.import_module(module.name), extraglobs={"torch": torch})
        assert result.failed == 0, module.name
        tried += result.attempted
    assert tried >= 5


@pytest.mark.parametrize("name", sorted(set(fedade.__all__) - {"__version__"}))
def test_every_public_name_has_an_example(name):
    """Which the test above runs: examples of all modules are tried there."""
    public = getattr(fedade, name)
    examples = [example for test in doctest.DocTestFinder().find(public, name) for example in test.examples]
    assert public.__doc__
    assert examples, "a docstring shows how it is used"
    assert public.__module__.startswith("fedade.")


def test_importing_the_library_loads_nothing_heavy():
    heavy = ("matplotlib", "sklearn", "cv2", "pyarrow", "typer", "scipy")
    code = f"import sys, fedade; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_client_on_flower_imports_no_library_that_it_does_not_use():
    code = "import sys, fedade.flower.client_app; print([n for n in ('sklearn', 'matplotlib') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_rate_rises_with_the_shift_and_stays_within_its_bounds():
    optimizer = torch.optim.Adam([torch.zeros(2, requires_grad=True)], lr=1.0)
    rate = fedade.ShiftAwareRate(optimizer, low=1e-4, high=1e-2)
    calm = torch.tensor([[0.7, 0.2, 0.1]])
    features = torch.tensor([[1.0, 0.0, 2.0]])
    assert rate.update(calm, features) == 1e-4, "nothing came before"
    assert rate.update(calm, features) == 1e-4, "nothing moved"
    little = rate.update(torch.tensor([[0.5, 0.4, 0.1]]), features)
    much = rate.update(torch.tensor([[0.0, 0.0, 1.0]]), -features)
    assert 1e-4 < little < much <= 1e-2
    assert optimizer.param_groups[0]["lr"] == much

    other = fedade.ShiftAwareRate(optimizer, low=1e-4, high=1e-2)
    other.load_state_dict(rate.state_dict())
    assert other.update(calm, features) == rate.update(calm, features)


def test_wrong_bounds_and_broken_batches_are_refused():
    optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0)
    with pytest.raises(ValueError, match="swap them"):
        fedade.ShiftAwareRate(optimizer, low=1.0, high=0.1)
    rate = fedade.ShiftAwareRate(optimizer, low=0.1, high=1.0)
    with pytest.raises(ValueError, match="NaN"):
        rate.update(torch.tensor([[float("nan"), 1.0]]), torch.ones(1, 2))
    for number in (0, 1):
        with pytest.raises(ValueError, match=f"holds {number} probabilities and {2 * number} features; pass one row"):
            rate.update(torch.full((number, 2), 0.5), torch.ones(2 * number, 2))
    assert rate.previous is None


def test_a_release_has_one_version():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(
        r"^## \[(\d[\d.]*)\] - (\S+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert newest is not None
    assert {project["version"], citation["version"], newest[1]} == {fedade.__version__}
    assert str(citation["date-released"]) == newest[2]
