"""A state that makes predictions worse than the deployed model's is given up."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import fedade
from fedade.adapter.judging import DeployedComparison
from fedade.core.context import ClientContext
from fedade.core.method import Card, Method
from fedade.parts.priors import deployed_probabilities

from .networks import cnn, labels_for, made


class Diverging(Method[Tensor]):
    """Adds one at every batch, and predicts NaN from the second on."""

    @property
    def card(self) -> Card:
        return Card("a test", "none")

    def begin(self, ctx: ClientContext) -> Tensor:
        return torch.zeros(())

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return state + 1, {}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return torch.full((len(ctx.inputs), 4), 0.25) / (state < 2)


def test_predictions_that_are_not_finite_are_answered_by_the_deployed_model():
    sample = made("small cnn")
    adapter = fedade.Adapter(fedade.deploy(sample.model, (sample.inputs, labels_for(sample))), Diverging())
    first, second = torch.rand(2, 40, 3, 12, 10, generator=torch.Generator().manual_seed(1)) + 0.3
    adapter(first)
    answer = adapter(second)
    with torch.no_grad():
        assert torch.equal(answer.argmax(-1), cnn_answer(sample.model, second))
    assert adapter._memory.state == 1, "as it was"
    assert adapter.status.rolled_back == 1
    assert "not finite" in adapter.status.reason
    assert adapter.status.learned == 1


def cnn_answer(model: nn.Module, batch: Tensor) -> Tensor:
    training = model.training
    answer = model.eval()(batch).argmax(-1)
    model.train(training)
    return answer


class Collapsing(Diverging):
    """Says the first class whatever it sees."""

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return torch.eye(4)[:1].expand(len(ctx.inputs), -1)


class SureAndWrong(Collapsing):
    """Takes each class for the next one: as sure as the deployed model, and telling as much apart."""

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return deployed_probabilities(ctx).roll(1, -1)


@pytest.fixture(scope="module")
def learnable():
    """A deployment that is right, with inputs and labels."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model, labels = cnn(3, 4), torch.arange(240) % 4
        inputs = torch.rand(4, 3, 8, 8)[labels] + 0.1 * torch.randn(240, 3, 8, 8)
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    deployment = fedade.deploy(model, (inputs, labels))
    assert deployment.accuracy > 0.9
    return deployment, inputs, labels


@pytest.mark.parametrize("method", [Collapsing(), SureAndWrong()])
@pytest.mark.parametrize("classes", [4, 1], ids=["all classes", "one class"])
def test_a_state_that_is_worse_by_the_deployed_model_is_given_up(method, classes, learnable):
    deployment, inputs, labels = learnable
    rows = (labels < classes) if classes > 1 else (labels == 2)
    adapter = fedade.Adapter(deployment, method)
    right = [(adapter(inputs[rows]).argmax(-1) == labels[rows]).float().mean() for _ in range(4)]
    assert right[2] <= 0.25
    assert right[3] > 0.9, "the deployed model answered"
    assert adapter._memory.state == 0, "it begins afresh"
    assert adapter.status.rolled_back == 1
    assert "by the deployed model" in adapter.status.reason


def test_a_state_that_tells_less_is_given_up_where_the_deployed_model_cannot_judge(learnable):
    deployment, inputs, _ = learnable
    judge = DeployedComparison(strangeness=-1.0)  # as if it were never at home
    adapter = fedade.Adapter(deployment, Collapsing(), monitor=judge)
    for _ in range(4):
        adapter(inputs[:80])
    assert adapter.status.rolled_back == 1
    assert "tell 0.00 of the classes" in adapter.status.reason
    sure = fedade.Adapter(deployment, SureAndWrong(), monitor=judge)
    for _ in range(8):
        sure(inputs[:80])
    assert sure.status.rolled_back == 0, "nobody can tell"


def test_good_states_are_kept_whatever_the_classes(learnable):
    deployment, inputs, labels = learnable
    adapter = fedade.Adapter(deployment)
    for rows in (labels < 4, labels == 1, labels < 2, labels == 3, labels < 4):
        for _ in range(4):
            adapter(inputs[rows])
    assert adapter.status.rolled_back == 0


@pytest.mark.parametrize("sharpness", [0.1, 3.0])
@pytest.mark.parametrize("method", ["source", "fed-ade-plus"])
def test_a_model_is_not_given_up_for_being_as_unsure_as_it_was_trained_to_be(method, sharpness, learnable):
    deployment, inputs, _ = learnable
    head = {name: value * sharpness for name, value in deployment.parameters.items() if name.startswith("head.")}
    scaled = {"parameters": deployment.parameters | head, "temperature": deployment.temperature * sharpness}
    adapter = fedade.Adapter(replace(deployment, **scaled), method, monitor=DeployedComparison(strangeness=-1.0))
    for _ in range(8):
        adapter(inputs[:80])
    assert adapter.status.rolled_back == 0, adapter.status.reason
