"""A server that remembers conditions: what it merges, what clients take from it, and what a liar can do."""

import numpy as np
import pytest
import torch

from fedade.core.context import ClientContext, RoundContext, context_before_first_batch
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.experiments.settings import experiment_from
from fedade.methods.fed_ade_plus.conditions import Report
from fedade.methods.fed_ade_plus.federated import (
    COUNT,
    MOST_REPORTED,
    RESIDUAL,
    SAMPLES,
    SIZES,
    FedAdePlusFederated,
    bounded,
    deviation,
    merged,
    none_yet,
)
from fedade.methods.fed_ade_plus.method import FedAdePlus

from ...helpers import run

METHOD = FedAdePlusFederated()


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", schedule="squ", num_clients=10, num_timesteps=8, samples=30)


@pytest.fixture(scope="module")
def deployment(scenario) -> Deployment:
    return scenario.deployment


def reports(deployment, *residuals: float, samples: float = 50.0) -> Report:
    """Reports whose every number is the same."""
    unit = deviation(deployment)
    return Report(
        torch.stack([torch.full_like(unit, value) for value in residuals]),
        torch.full((len(residuals),), samples),
    )


def known(shared) -> dict[float, float]:
    """Residuals of the conditions that were met, with their samples."""
    met = shared[SAMPLES] > 0
    return dict(zip(shared[SIZES][met][:, 0, 0].tolist(), shared[SAMPLES][met].tolist(), strict=True))


def test_reports_that_agree_become_one_condition_and_others_one_of_their_own(deployment):
    shared, places = merged(deployment, none_yet(deployment), reports(deployment, 1.0, 1.1, -1.0, 1.2))
    assert places.tolist() == [0, 0, 1, 0]
    conditions = known(shared)
    assert [round(size, 2) for size in conditions] == [1.1, -1.0]
    assert list(conditions.values()) == pytest.approx([150, 50])


def test_what_sampling_explains_is_no_condition_of_its_own(deployment):
    for samples, places in (5.0, [0, 0]), (100.0, [0, 1]):
        told = reports(deployment, 0.0, 0.3, samples=samples)
        assert merged(deployment, none_yet(deployment), told)[1].tolist() == places


def test_a_full_memory_gives_up_the_condition_with_the_fewest_samples(deployment):
    shared = none_yet(deployment)
    room = len(shared[SAMPLES])
    often = reports(deployment, *np.linspace(0.5, 2.9, 4).tolist() * 2)
    for _ in range(3):
        shared, _ = merged(deployment, shared, often)
    rare = Report(torch.randn(2 * room, *deviation(deployment).shape).sign() * 2, torch.full((2 * room,), 20.0))
    shared, _ = merged(deployment, shared, rare)
    assert len(shared[SAMPLES]) == room
    assert {round(size, 1) for size in known(shared)} >= {0.5, 1.3, 2.1, 2.9}


@pytest.mark.parametrize(
    "told",
    [(torch.nan, 50.0), (torch.inf, 50.0), (1.0, torch.nan), (1.0, 0.0), (1.0, -50.0)],
    ids=["NaN", "infinite", "no count", "nothing", "less than nothing"],
)
def test_a_report_that_is_none_changes_nothing(deployment, told):
    residual, samples = told
    before, _ = merged(deployment, none_yet(deployment), reports(deployment, 1.0))
    after, _ = merged(deployment, before, reports(deployment, residual, samples=samples))
    assert torch.equal(after[SIZES], before[SIZES])
    assert (after[SAMPLES] <= before[SAMPLES]).all()


def test_a_report_counts_for_no_more_and_reaches_no_farther_than_it_may(deployment):
    shared, _ = merged(deployment, none_yet(deployment), reports(deployment, 1e6, samples=1e9))
    ((size, samples),) = known(shared).items()
    assert (size, samples) == (pytest.approx(3.0, abs=1e-2), MOST_REPORTED)


def test_noise_makes_a_report_count_for_fewer_samples(deployment):
    plain = Report(torch.zeros_like(deviation(deployment)), torch.tensor(50.0))
    noisy = bounded(plain, torch.ones_like(plain.residual), 0.2)
    assert noisy.residual.eq(0.2).all()
    assert noisy.samples.item() == pytest.approx(1 / (1 / 50 + 0.2**2))


def client(scenario, method, shared, timestep=8, number=0, samples=30):
    """A client that meets its first batch, and its plan."""
    batch = scenario.streams.draw(np.array([number]), timestep)
    ctx = ClientContext(scenario.deployment, batch.inputs[0][:samples], torch.tensor(timestep), torch.tensor(0), shared)
    return ctx, method.observe(ctx, method.begin(context_before_first_batch(scenario.deployment)))[0]


def reported_by(scenario, number, timestep=8):
    """What the server knows after a client's only batch."""
    shared = METHOD.begin_server(scenario.deployment)
    ctx, state = client(scenario, METHOD, shared, timestep, number)
    asked = RoundContext(ctx.deployment, ctx.inputs, ctx.timestep, ctx.key, shared)
    _, _, uplink = METHOD.local_round(asked, state, {})
    return METHOD.aggregate(
        scenario.deployment, shared, {name: value[None] for name, value in uplink.items()}, torch.ones(1)
    )[0]


def test_a_client_starts_from_what_others_know_of_its_condition(scenario):
    shift = scenario.streams.conditions(np.arange(10), 8)[0][:, 0]
    number = int(np.flatnonzero(shift == shift[8])[0])  # who meets the same corruption as client 8
    assert number != 8
    told = reported_by(scenario, 8)
    _, alone = client(scenario, METHOD, METHOD.begin_server(scenario.deployment), number=number, samples=10)
    _, helped = client(scenario, METHOD, told, number=number, samples=10)
    assert alone.residuals[0].samples.max() == 10
    assert helped.residuals[0].samples.max() > 25


def test_fewer_samples_than_a_report_has_are_put_to_the_clients_own_conditions_alone(scenario):
    told = reported_by(scenario, 8)
    for samples in (1, METHOD.least_reported - 1):
        _, alone = client(scenario, FedAdePlus(), {}, number=8, samples=samples)
        _, federated = client(scenario, METHOD, told, number=8, samples=samples)
        for name, value in alone.statistics.items():
            assert torch.equal(federated.statistics[name], value), name
        for one, other in zip(federated.residuals, alone.residuals, strict=True):
            assert torch.equal(one.size, other.size)
        assert federated.report.samples == samples, "it still tells what it saw"
    _, enough = client(scenario, METHOD, told, number=8, samples=METHOD.least_reported)
    assert enough.residuals[0].samples.max() > METHOD.least_reported


def test_nothing_is_taken_from_a_condition_that_the_batch_does_not_resemble(scenario):
    nothing = METHOD.begin_server(scenario.deployment)
    told, _ = merged(scenario.deployment, nothing, reports(scenario.deployment, *[3.0, -3.0] * 5))
    _, alone = client(scenario, METHOD, nothing)
    _, lied_to = client(scenario, METHOD, told)
    for name, value in alone.statistics.items():
        torch.testing.assert_close(lied_to.statistics[name], value)


def test_before_anybody_has_told_anything_a_client_is_as_if_alone(scenario):
    _, alone = client(scenario, FedAdePlus(), {})
    _, federated = client(scenario, METHOD, METHOD.begin_server(scenario.deployment))
    for name, value in alone.statistics.items():
        torch.testing.assert_close(federated.statistics[name], value)


def test_a_report_waits_until_it_has_enough_samples(scenario):
    shared = METHOD.begin_server(scenario.deployment)
    state = METHOD.begin(context_before_first_batch(scenario.deployment))
    counts = []
    for timestep in range(1, 9):
        inputs = scenario.streams.draw(np.array([0]), timestep).inputs[0][:3]
        ctx = RoundContext(scenario.deployment, inputs, torch.tensor(timestep), torch.tensor(0), shared)
        state, plan = METHOD.observe(ctx, state)
        state, _, uplink = METHOD.local_round(ctx, state, plan)
        counts.append(uplink[COUNT].item())
        assert bool(uplink[RESIDUAL].any()) == bool(counts[-1])
        assert METHOD.local_round(ctx, state, plan)[2][COUNT] == 0  # and is told once
    assert counts == [0, 0, 0, 12, 0, 0, 0, 12]


def test_an_exchange_takes_less_than_100_kb(scenario):
    for rows in run(METHOD, scenario, participation=1.0)[:2]:
        assert 0 < (rows["bytes_sent"] + rows["bytes_received"]).max() < 100_000


def test_gradient_steps_are_refused():
    with pytest.raises(FedadeError, match="gradient_steps of fed-ade-plus"):
        experiment_from({
            "methods": ["fed-ade-plus-federated"],
            "method": {"fed-ade-plus-federated": {"gradient_steps": True}},
        })  # fmt: skip


class OneLies(FedAdePlusFederated):
    """Client 0 reports false conditions: far from all, opposite to its own, or what it is not under another's name."""

    lie: str

    def aggregate(self, deployment, shared, uplinks, weights):
        told = uplinks[RESIDUAL].clone()
        told[0] = {
            "far": torch.full_like(told[0], 1e4),
            "opposite": -3 * told[0],
            "neighbour": 1.3 * told[1],
            "shuffled": told[0].roll(1, -1),
        }[self.lie]
        counts = uplinks[COUNT].clone()
        counts[0] = 1e6
        return super().aggregate(deployment, shared, {RESIDUAL: told, COUNT: counts}, weights)


@pytest.mark.parametrize("lie", ["far", "opposite", "neighbour", "shuffled"])
def test_one_liar_of_ten_costs_the_others_less_than_half_a_point(scenario, lie):
    def honest(method) -> float:
        rows = run(method, scenario, participation=1.0)
        return float(np.mean([step["accuracy_post"][1:] for step in rows]))

    assert honest(OneLies(lie=lie)) > honest(METHOD) - 0.005
