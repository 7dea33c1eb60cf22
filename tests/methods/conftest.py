import numpy as np
import pytest
import torch

from ..helpers import Seen


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    """Inputs that are corrupted more and more."""
    return scenario_factory(kind="covariate")


@pytest.fixture(scope="module")
def observation(scenario) -> Seen:
    """The most corrupted batch of a client."""
    return Seen(scenario.streams.draw(np.arange(1), 4).inputs[0], torch.tensor(1), torch.tensor(5))
