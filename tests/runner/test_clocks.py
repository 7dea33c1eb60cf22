"""Which clients run together."""

import pytest
import torch
from torch import nn

from fedade.core.precision import Precision
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.engine.execution import Captured
from fedade.experiments.settings import experiment_from
from fedade.kernels import compile_side_by_side
from fedade.methods.source import Source
from fedade.runner.clocks import build_clock, can_be_vectorised
from fedade.speed.workload import Work, random_scenario


def wide(num_classes: int) -> nn.Module:
    """A network whose products, rounded to bf16, differ between one client and several."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, num_classes)
    )


class Counting(nn.Module):
    """A network that cannot be asked for several clients at once: it looks at its numbers."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = wide(num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs) if inputs.sum() > 0 else -self.layers(inputs)


def vectorised(model: str, precision: Precision) -> bool:
    work = Work(timesteps=1, model=f"import:{__name__}:{model}")
    return can_be_vectorised(random_scenario(work, "cpu").deployment.computing_in(precision))


def test_rounding_does_not_send_a_brought_network_through_the_loop():
    assert vectorised("wide", "float32")
    assert vectorised("wide", "bf16")


def test_a_network_that_looks_at_its_numbers_runs_client_by_client():
    assert not vectorised("Counting", "float32")


class SomebodysMethod(Source):
    """A method from outside the package."""


@pytest.mark.parametrize(("method", "rehearsed"), [(Source(), True), (SomebodysMethod(), False)])
def test_only_methods_of_this_package_are_rehearsed(scenario_factory, method, rehearsed, tmp_path):
    """Kernels leave zeros in a rehearsal; an index that somebody's method makes of them would end the process."""
    experiment = experiment_from({"execution": {"client_map": "loop"}})
    on_gpu = experiment.execution.model_copy(update={"device": "cuda"})
    experiment = experiment.model_copy(update={"execution": on_gpu})
    execution = build_clock(experiment, [Federation(scenario_factory(), Seeds(0), method)], tmp_path).execution
    assert isinstance(execution, Captured)
    assert (execution.compile_ahead is compile_side_by_side) == rehearsed
