"""What CoTTA alone promises."""

from dataclasses import replace

import pytest
import torch

from fedade.core.deployment import Reference
from fedade.core.errors import FedadeError
from fedade.methods.cotta import Cotta
from fedade.parts.composition import trainable
from fedade.parts.norm_layers import batch_logits

from ..helpers import begin, observe, predict

UNSURE, SURE = {"anchor_confidence": 1.0}, {"anchor_confidence": 0.0}


def after(method: Cotta, scenario, observation, times: int = 1):
    client, plan = begin(method, scenario.deployment), {}
    for turn in range(times):
        client, plan = observe(method, scenario.deployment, client, (), observation._replace(key=torch.tensor(turn)))
    return client, plan


def flat(parameters) -> torch.Tensor:
    return torch.cat([value.flatten() for value in parameters.values()])


def test_weights_are_restored_at_random(scenario, observation):
    source = flat(trainable(scenario.deployment))
    kept = flat(after(Cotta(**UNSURE, views=2, restoration=0.0), scenario, observation)[0].student) == source
    some = flat(after(Cotta(**UNSURE, views=2, restoration=0.3), scenario, observation)[0].student) == source
    moved = ~kept
    assert abs(float(some[moved].float().mean()) - 0.3) < 0.02
    every, _ = after(Cotta(**UNSURE, views=2, restoration=1.0), scenario, observation)
    assert torch.equal(flat(every.student), source)


def test_restored_weights_differ_from_timestep_to_timestep(scenario, observation):
    method, source = Cotta(**UNSURE, views=2, restoration=0.5), flat(trainable(scenario.deployment))
    once, twice = after(method, scenario, observation, 1)[0], after(method, scenario, observation, 2)[0]
    assert not torch.equal(flat(once.student) == source, flat(twice.student) == source)


def test_the_teacher_is_a_slow_average_of_the_student(scenario, observation):
    method = Cotta(**UNSURE, views=2, restoration=0.0, teacher_momentum=0.9)
    first, _ = after(method, scenario, observation, 1)
    second, _ = after(method, scenario, observation, 2)
    torch.testing.assert_close(flat(second.teacher), 0.9 * flat(first.teacher) + 0.1 * flat(second.student))
    inputs = observation.inputs
    expected = batch_logits(scenario.deployment, second.teacher, inputs).softmax(-1)
    assert torch.equal(predict(method, scenario.deployment, second, (), inputs), expected)


def test_views_are_averaged_only_where_the_deployed_model_is_unsure(scenario, observation):
    def student(views: int, **trust: float) -> torch.Tensor:
        # Two timesteps: at the first, student and teacher agree unless views set them apart.
        return flat(after(Cotta(**trust, views=views), scenario, observation, 2)[0].student)

    assert torch.equal(student(1, **SURE), student(3, **SURE))
    assert not torch.equal(student(1, **UNSURE), student(3, **UNSURE))


@pytest.mark.parametrize("shape", [(16, 3), (16,)])
def test_inputs_that_are_no_images_and_no_texts_are_refused(scenario, shape):
    reference = Reference(torch.zeros(5, *shape), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(FedadeError, match="cotta: needs images or texts, but inputs have the shape"):
        begin(Cotta(), replace(scenario.deployment, reference=reference))
