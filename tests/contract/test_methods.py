"""Promises that every registered method keeps; the registry is the list, so a new method is tested by itself."""

from pathlib import Path

import pytest
import torch

import fedade.methods
from fedade.checking.checks import CHECKS
from fedade.checking.trials import BrokenPromiseError, MethodTrial, OnlyRecordable, TrialScenarios, trial_scenarios
from fedade.methods import METHODS

from ..helpers import QUICKER, VARIANTS, quick


@pytest.fixture(scope="module")
def scenarios(cache) -> TrialScenarios:
    return trial_scenarios(Path(cache))


@pytest.fixture(scope="module", params=[*sorted(METHODS), *VARIANTS])
def trial(request, scenarios) -> MethodTrial:
    """One for all checks of a method, so that its usual run is made once."""
    return MethodTrial(quick(request.param, QUICKER), scenarios)


def test_the_suite_covers_every_method_and_every_file():
    files = {path.stem for path in Path(fedade.methods.__file__).parent.glob("[!_]*")}
    registered = {getattr(make, "func", make).__module__.split(".")[2] for make in METHODS.values()}
    assert files == registered


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_its_promises(check, trial):
    CHECKS[check](trial)


@pytest.mark.parametrize("refused", [lambda: torch.ones(1).sum().item(), lambda: torch.tensor(1.0)])
def test_what_cannot_be_recorded_is_noticed(refused):
    with pytest.raises(BrokenPromiseError, match=r"reads a number back|copies a Python number"), OnlyRecordable():
        refused()
