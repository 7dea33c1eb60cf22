"""What Fed-ADE alone promises."""

import numpy as np
import pytest
import torch

from fedade.checking.checks import OtherStreams
from fedade.checking.trials import ran
from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.core.scenario import Batch, Scenario
from fedade.methods import METHODS
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_release import FedAdeRelease
from fedade.parts.composition import effective, trainable, trainable_personal

from ..helpers import Rows, begin, beginning, clock, final_world, first_batch, observe, only, predict, run

RATES = {"low": 1e-3, "mid": 1e-2, "high": 3e-2}

PAPER_SWITCHES = {
    "objective": "bbse",
    "broadcast": True,
    "fixed_participants": False,
    "prediction_summary": "softmax",
    "feature_reference": "previous",
    "feature_summary": "per-sample",
    "signal_per": "timestep",
    "signal_pass": "eval",
    "dropout": 0.0,
    "order": "joint-first",
    "weights": "samples",
    "normalisation": "frozen",
    "first_signal": "reference",
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def scenario(scenario_factory) -> Scenario:
    return scenario_factory(kind="both", schedule="squ")


@pytest.fixture(scope="module")
def paper_rows(scenario) -> Rows:
    """Fed-ADE as printed, in two rounds a timestep."""
    return run(FedAde(rate=RATES), scenario, rounds=2)


@pytest.fixture(scope="module")
def plain_head(scenario) -> torch.Tensor:
    """The clients' heads after a run with plain gradient steps."""
    return final_world(FedAde(rate=RATES), scenario).clients.own["head.weight"]


def columns_equal(first, second) -> bool:
    return all(np.array_equal(one[name], other[name]) for one, other in zip(first, second, strict=True) for name in one)


def test_equal_bounds_are_a_fixed_rate_bit_for_bit(scenario):
    adaptive = ran(FedAde(rate={"low": 3e-2, "high": 3e-2}), scenario, rounds=2)
    fixed = ran(METHODS["fix-lr-mid"](rate={"mid": 3e-2}), scenario, rounds=2)
    assert columns_equal(adaptive.rows, fixed.rows)
    for one, other in zip(tree.leaves(adaptive.world.clients), tree.leaves(fixed.world.clients), strict=True):
        assert torch.equal(one, other)


def test_the_three_fixed_rates_are_their_names(scenario):
    for pace in ("low", "mid", "high"):
        rows = run(METHODS[f"fix-lr-{pace}"](rate=RATES), scenario)
        assert all((step["learning_rate"] == np.float32(RATES[pace])).all() for step in rows)


def test_after_a_broadcast_every_client_computes_with_the_same_shared_layers(scenario):
    """The released code's broadcast never happened; this is the test that it would fail."""
    method = FedAde(rate=RATES)
    world = final_world(method, scenario, participation=0.25)
    deployed = method.begin_server(scenario.deployment)
    models = [effective(scenario.deployment, world.server, tree.take(world.clients, client).own) for client in range(8)]
    for name, value in deployed.items():
        assert not torch.equal(world.server[name], value), f"{name} never moved"
        assert all(torch.equal(model[name], world.server[name]) for model in models)
    heads = torch.stack([model["head.weight"] for model in models])
    assert (heads != heads[0]).any(), "heads are personal"


@pytest.mark.parametrize(("broadcast", "reached"), [(True, True), (False, False)])
def test_a_broadcast_reaches_those_who_did_not_take_part(scenario, broadcast, reached):
    method = FedAdeRelease(rate=RATES, broadcast=broadcast, normalisation="frozen")
    world = beginning(method, scenario)
    runner = clock(method, scenario, participation=0.25)
    took_part = next(iter(runner.run(world)))["participated"]
    world = only(world)
    idle = int(np.flatnonzero(took_part == 0)[0])
    inputs = scenario.streams.draw(np.array([idle]), 1).inputs[0]
    with torch.no_grad():
        now = predict(method, scenario.deployment, tree.take(world.clients, idle), world.server, inputs)
        source = predict(METHODS["source"](), scenario.deployment, (), (), inputs)
    assert (not torch.equal(now, source)) == reached


def test_a_client_keeps_its_layers_and_k_plus_d_floats(scenario):
    method = FedAde()
    client = begin(method, scenario.deployment)
    beyond = sum(leaf.numel() for leaf in tree.leaves(client)) - sum(
        value.numel() for value in scenario.deployment.personal.values()
    )
    assert beyond == scenario.deployment.num_classes + len(scenario.deployment.initial_feature)
    observed, _ = observe(
        method,
        scenario.deployment,
        client,
        method.begin_server(scenario.deployment),
        first_batch(scenario),
    )
    assert tree.num_bytes(observed) == tree.num_bytes(client), "state does not grow"


def test_it_sends_what_fixed_rates_send_and_only_shared_layers(scenario):
    adaptive, fixed = run(FedAde(rate=RATES), scenario), run(METHODS["fix-lr-high"](rate=RATES), scenario)
    shared = sum(value.numel() * 4 for value in FedAde().begin_server(scenario.deployment).values())
    for one, other in zip(adaptive, fixed, strict=True):
        assert np.array_equal(one["bytes_sent"], other["bytes_sent"])
        assert np.array_equal(one["bytes_received"], other["bytes_received"])
        assert (one["bytes_sent"] == shared * one["participated"]).all()
        assert (one["bytes_received"] == shared * one["participated"]).all()


def shaken(batch: Batch) -> Batch:
    """Client 3 sees noise instead of its data."""
    inputs = batch.inputs.clone()
    inputs[3] = 255 - inputs[3]
    return batch._replace(inputs=inputs)


def test_a_rate_depends_on_its_own_client_only(scenario):
    method = FedAde(rate=RATES)
    calm = next(iter(clock(method, scenario).run(beginning(method, scenario))))
    other = Scenario(scenario.deployment, OtherStreams(scenario.streams, drawn=shaken))
    moved = next(iter(clock(method, other).run(beginning(method, other))))
    changed = calm["learning_rate"] != moved["learning_rate"]
    assert changed.tolist() == [client == 3 for client in range(8)]


def test_rates_stay_within_their_bounds_and_follow_the_signal(paper_rows):
    for rows in paper_rows:
        assert (rows["learning_rate"] >= 1e-3).all()
        assert (rows["learning_rate"] <= 3e-2).all()
        order = np.argsort(rows["s"])
        assert (np.diff(rows["learning_rate"][order]) >= 0).all()
        np.testing.assert_allclose(rows["s"], (rows["s_unc"] + rows["s_rep"]) / 2, rtol=1e-5)


@pytest.mark.parametrize(("without", "left"), [("use_unc", "s_rep"), ("use_rep", "s_unc")])
def test_either_signal_can_be_left_out(scenario, without, left):
    for rows in run(FedAde(rate=RATES, **{without: False}), scenario):
        np.testing.assert_array_equal(rows["s"], rows[left])


def test_signals_are_computed_once_per_timestep_by_every_client(scenario):
    once, thrice = (
        run(FedAde(rate={"low": 0, "high": 0}), scenario),
        run(FedAde(rate={"low": 0, "high": 0}), scenario, rounds=3),
    )
    for one, other in zip(once, thrice, strict=True):
        assert np.array_equal(one["s"], other["s"])
        assert (one["s"] > 0).all()


@pytest.mark.parametrize("further", [{}, {"optimiser": {"name": "adamw", "clip": 1.0}, "reference_draws": "prior"}])
def test_the_release_with_every_switch_at_the_paper_is_fed_ade(scenario, further):
    paper = run(FedAde(rate=RATES, **further), scenario, rounds=2)
    switched = run(FedAdeRelease(rate=RATES, **PAPER_SWITCHES, **further), scenario, rounds=2)
    assert columns_equal(paper, switched)


def test_sgd_keeps_nothing_and_adamw_two_moments_of_each_kind_of_step(scenario):
    """Memory is |ψ| + N|φ|, plus K + d floats of summaries; moments are each client's own."""
    deployment = scenario.deployment
    personal, everything = (tree.num_bytes(part) for part in (trainable_personal(deployment), trainable(deployment)))
    summaries = tree.num_bytes((deployment.source_prior, deployment.initial_feature))
    plain = tree.num_bytes(begin(FedAde(), deployment))
    assert plain == personal + summaries
    counters = 2 * 4
    kept = tree.num_bytes(begin(FedAde(optimiser={"name": "adamw"}), deployment))
    assert kept == plain + 2 * (everything + personal) + counters


@pytest.mark.parametrize(
    "settings",
    [{"name": "adamw"}, {"clip": 1e-3}, {"weight_decay": 1.0}, {"name": "adamw", "clip": 1e-3, "weight_decay": 1.0}],
)
def test_every_setting_of_the_optimiser_changes_the_steps(scenario, plain_head, settings):
    changed = final_world(FedAde(rate=RATES, optimiser=settings), scenario).clients.own["head.weight"]
    assert changed.isfinite().all()
    assert (plain_head - changed).abs().max() > 1e-6


ALONE = {
    name: getattr(FedAdeRelease(), name) for name in PAPER_SWITCHES if name not in ("batch_size", "dropout", "weights")
}
"""Each switch of the release; equal batch sizes make the weights equal, and dropout acts in training mode only."""


@pytest.mark.parametrize("switch", sorted(ALONE))
def test_every_switch_of_the_release_changes_something(scenario, paper_rows, switch):
    together = {"signal_pass": {"dropout": 0.5}}.get(switch, {})
    changed = FedAdeRelease(rate=RATES, **{**PAPER_SWITCHES, switch: ALONE[switch], **together})
    assert not columns_equal(paper_rows, run(changed, scenario, rounds=2))


def test_weights_of_the_average_are_sizes_or_equal(scenario):
    uplinks = {"body.x": torch.tensor([[1.0], [4.0]])}
    sizes = torch.tensor([1.0, 2.0])
    by_size, _ = FedAde().aggregate(scenario.deployment, {}, uplinks, sizes)
    plain, _ = FedAdeRelease().aggregate(scenario.deployment, {}, uplinks, sizes)
    assert by_size["body.x"].item() == pytest.approx(3.0)
    assert plain["body.x"].item() == pytest.approx(2.5)


def test_fixed_participants_are_the_same_at_every_timestep(scenario):
    fixed = run(FedAdeRelease(rate=RATES), scenario, participation=0.25)
    fresh = run(FedAde(rate=RATES), scenario, participation=0.25)
    assert all(np.array_equal(rows["participated"], fixed[0]["participated"]) for rows in fixed)
    assert any(not np.array_equal(rows["participated"], fresh[0]["participated"]) for rows in fresh)


def test_every_client_takes_part_sooner_or_later(scenario_factory):
    scenario = scenario_factory(num_timesteps=25, samples=1)
    idle = METHODS["fix-lr-low"](joint_epochs=0, personal_epochs=0)
    total = sum(rows["participated"] for rows in run(idle, scenario, rounds=2, participation=0.25))
    assert (total > 0).all()


def test_the_literal_inverse_is_refused_where_it_is_not_safe(scenario):
    from dataclasses import replace

    singular = replace(scenario.deployment, confusion=torch.full((10, 10), 0.1))
    with pytest.raises(FedadeError, match="simplex_ls"):
        begin(FedAde(prior="inv"), singular)
    begin(FedAde(prior="inv"), scenario.deployment)


def test_a_model_that_diverges_is_named_not_scored(scenario):
    with pytest.raises(FedadeError, match=r"timestep \d+: its predictions are not finite.*setting `rate`"):
        run(FedAde(rate={"low": 1e6, "high": 1e6}), scenario, rounds=3)


def test_a_batch_with_nan_is_named(scenario):
    def broken(batch: Batch) -> Batch:
        inputs = batch.inputs.float()
        inputs[2, 0, 0, 0, 0] = float("nan")
        return batch._replace(inputs=inputs)

    with pytest.raises(FedadeError, match="client 2, timestep 1: the batch holds NaN"):
        run(FedAde(), Scenario(scenario.deployment, OtherStreams(scenario.streams, drawn=broken)))


def test_a_run_tells_what_it_costs(scenario):
    """Observing: the client's model and the deployed one. A round: 2 joint epochs, then features for the head."""
    method = FedAde(rate=RATES)
    for vectorised in (True, False):
        rows = run(method, scenario, vectorised=vectorised)[0]
        reference = len(scenario.deployment.reference.labels)
        np.testing.assert_array_equal(rows["passes"], 2 * 20 + rows["participated"] * (2 * 3 + 1) * reference)
        kept = tree.num_bytes(begin(method, scenario.deployment))
        assert (rows["state_bytes"] == kept).all()
    assert (run(METHODS["source"](), scenario)[0]["passes"] == 0).all(), "scoring is not the method's cost"


def test_replayed_rates_have_the_measured_sizes_and_another_order(scenario):
    measured = tuple(np.linspace(0.001, 0.02, 32).tolist())
    mean = run(METHODS["fix-lr-mean"](measured_rates=measured), scenario)
    assert all(np.allclose(rows["learning_rate"], np.mean(measured)) for rows in mean)
    shuffled = run(METHODS["shuffled-lr"](measured_rates=measured), scenario)
    found = np.concatenate([rows["learning_rate"] for rows in shuffled])
    assert np.isclose(found[:, None], np.array(measured, dtype=np.float32)).any(1).all()
    assert len(np.unique(found)) > 10


def test_statistics_of_personal_body_layers_never_take_gradient_steps(scenario_factory):
    scenario = scenario_factory(personal=("head.", "body.1.3."))
    deployed = {name: value for name, value in scenario.deployment.personal.items() if "running" in name}
    assert deployed, "this split keeps a block with BatchNorm"
    for method in (FedAde(rate=RATES), FedAdeRelease(rate=RATES, **PAPER_SWITCHES)):
        own = final_world(method, scenario).clients.own
        assert all((own[name] == value).all() for name, value in deployed.items())
        assert any((own[name] != value).any() for name, value in scenario.deployment.personal.items())
