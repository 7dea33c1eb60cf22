"""A rehearsal goes through a timestep of any method, though every kernel leaves zeros; on a GPU an index that follows
from a wrong value would end the process, here it is an error."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedade import kernels
from fedade.client_map import Vectorised
from fedade.core import tree
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Direct
from fedade.engine.steps import Maps
from fedade.kernels import compiling
from fedade.methods import METHODS
from fedade.scenarios.building import build_scenario
from fedade.scenarios.settings import ScenarioSettings

from ..helpers import quick, with_streams

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


class Rehearsing(Direct):
    """Rehearses with the kernels of a GPU, none of which is run."""

    def rehearse(self, kind, work):
        with pytest.MonkeyPatch.context() as patched, compiling.instead_of_running():
            patched.setattr(kernels, "_runs_triton", lambda *_: True)
            patched.setattr(compiling.Compiler, "launch", lambda *_arguments, **_constants: None)
            work()


@pytest.fixture(scope="module")
def scenario(cache):
    settings = ScenarioSettings(
        num_clients=6, num_timesteps=2, samples=20, train_size=350, reference_size=50, kind="both"
    )
    return build_scenario(settings, 0, "cpu", Path(cache), lambda _done, _of: None)


def clock_of(name, scenario, execution):
    further = (Federation(with_streams(scenario, "squ", 3), Seeds(3)),)
    maps = Maps(Vectorised(), Vectorised(), Vectorised())
    return Clock(quick(name), scenario, Rounds(2, 0.5), Seeds(0), maps, more_federations=further, execution=execution)


def continued(name, scenario, execution):
    """The world after two timesteps; the second is of a process that begins from a checkpoint."""
    clock = clock_of(name, scenario, execution)
    world = clock.beginning()
    next(clock.advance(world))
    unmeasured = replace(scenario, deployment=replace(scenario.deployment))
    next(clock_of(name, unmeasured, execution).advance(world))
    return tree.leaves((world.clients, world.server))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_rehearsal_fails_for_no_method_and_changes_nothing(scenario, name):
    rehearsed, plain = (continued(name, scenario, execution) for execution in (Rehearsing(), Direct()))
    for one, other in zip(rehearsed, plain, strict=True):
        assert torch.equal(one, other)
