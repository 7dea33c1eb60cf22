"""Promises that every registered method keeps; the registry is the list, so a new method is tested by itself."""

from pathlib import Path

import pytest
import torch

import fedade.methods
from fedade.checking.checks import CHECKS
from fedade.checking.promises import BrokenPromiseError
from fedade.checking.recording import OnlyRecordable
from fedade.checking.trials import TrialScenarios, trial_scenarios
from fedade.core.method import Method
from fedade.methods import METHODS, settings_of

from ..helpers import QUICK


@pytest.fixture(params=sorted(METHODS))
def method(request) -> Method:
    fields = settings_of(request.param)
    return METHODS[request.param](**{name: value for name, value in QUICK.items() if name in fields})


@pytest.fixture(scope="module")
def scenarios(cache) -> TrialScenarios:
    return trial_scenarios(Path(cache))


def test_the_suite_covers_every_method_and_every_file():
    files = {path.stem for path in Path(fedade.methods.__file__).parent.glob("[!_]*")}
    registered = {getattr(make, "func", make).__module__.split(".")[2] for make in METHODS.values()}
    assert files == registered


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_its_promises(check, method, scenarios):
    CHECKS[check](method, scenarios)


@pytest.mark.parametrize("refused", [lambda: torch.ones(1).sum().item(), lambda: torch.tensor(1.0)])
def test_what_cannot_be_recorded_is_noticed(refused):
    with pytest.raises(BrokenPromiseError, match=r"reads a number back|copies a Python number"), OnlyRecordable():
        refused()
