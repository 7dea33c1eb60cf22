"""Theory from runs: replays see what the run saw, regret is zero for who is the comparator, and what is refused."""

import csv
import math
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from fedade.experiments.tracks import Track, run_one

from fedade.core import trace, tree
from fedade.core.errors import FedadeError
from fedade.experiments import theory, theory_finetune
from fedade.experiments.settings import experiment_from
from fedade.experiments.theory import Case, write_theory
from fedade.experiments.theory_landscape import Curvature, landscape
from fedade.experiments.theory_measures import panel, replayed_signals
from fedade.experiments.theory_models import client_models
from fedade.experiments.theory_oracle import Comparator, TheorySettings, losses, oracle_of
from fedade.experiments.theory_replay import replay
from fedade.maths.dynamics import mean_feature
from fedade.maths.logistic_head import head_probabilities
from fedade.methods import METHODS
from fedade.reporting.theory_results import COMPARATORS, MEASURES

from ..conftest import SMALL
from ..helpers import clock

SETTINGS = TheorySettings(clients=3, timesteps=4, points=1)
SCENARIO = {**SMALL, "num_clients": 6, "num_timesteps": 9, "samples": 20, "schedule": "squ"}
FEDERATION = {"rounds": 1, "participation": 0.5, "score_fresh": True}
METHOD = {"rate": {"low": 0.03, "mid": 0.05, "high": 0.1}, "batch_size": 50}
CHOSEN = ("fed-ade", "source", "oracle-prior")


def run_case(folder: Path, method: str, **scenario: object) -> Case:
    experiment = experiment_from(
        {
            "scenario": {**SCENARIO, **scenario},
            "federation": FEDERATION,
            "methods": (method,),
            "method": METHOD,
        }
    )
    track = Track(method, 0)
    run_one(experiment, folder, "cpu", track, lambda *_: None)
    return Case({"suite": "small", "row": f"the {method}"}, experiment, track.folder(folder) / "trace.parquet")


@pytest.fixture(scope="module")
def cases(cache, tmp_path_factory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("runs")
    return {method: run_case(folder, method) for method in CHOSEN}


@pytest.fixture(scope="module")
def written(cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("theory")
    results = write_theory(list(cases.values()), folder, SETTINGS)
    return folder, {one.labels["method"]: one for one in results}


@pytest.fixture
def oracle(scenario_factory):
    scenario = scenario_factory(**{**SCENARIO, "schedule": "lin"})
    return oracle_of(scenario, 0, np.arange(6), SETTINGS)


def rewritten(case: Case, path: Path, change) -> Case:
    trace.write(path, change(trace.read(case.trace)))
    return case._replace(trace=path)


def test_every_file_is_there_and_every_column_is_a_known_measure(written):
    folder, results = written
    assert {path.name for path in folder.iterdir()} == {
        "theory.csv", "theory.md", "regret-T.png", "regret-S.png", "theory",
    }  # fmt: skip
    rows = list(csv.DictReader((folder / "theory.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [f"the {method}" for method in CHOSEN]
    assert {name for one in results.values() for name in one.measures} <= set(MEASURES)
    assert float(rows[0]["bound"]) == pytest.approx(results["fed-ade"].measure("bound"), rel=1e-6)
    assert (folder / "regret-T.png").read_bytes().startswith(b"\x89PNG")


def test_regret_is_zero_for_the_method_that_is_its_comparator(written):
    measures = written[1]["oracle-prior"].measures
    assert measures["regret_prior"] == 0
    assert measures["regret_01_prior"] == 0
    assert measures["interval_regret_prior_max"] == 0
    assert measures["regret_head_convex"] > 0


def test_who_does_nothing_has_the_larger_regret_and_no_bound(written):
    source, oracle_prior = written[1]["source"], written[1]["oracle-prior"]
    assert source.measure("regret_prior") > 0
    assert source.measure("regret_head_convex") > oracle_prior.measure("regret_head_convex")
    assert math.isnan(source.measure("bound"))
    assert math.isnan(source.measure("ceiling"))


def test_regret_is_the_difference_of_mean_losses_times_the_horizon(written):
    measures = written[1]["fed-ade"].measures
    excess = measures["loss"] - measures["loss_head_convex"]
    assert measures["regret_head_convex"] == pytest.approx(9 * excess)


def test_the_terms_add_up_and_the_best_rate_is_better(written):
    measures = written[1]["fed-ade"].measures
    terms = sum(measures[f"bound_{name}"] for name in ("optimisation", "projection", "adaptation"))
    assert measures["bound"] == pytest.approx(terms)
    assert measures["bound_at_rate_star"] <= measures["bound"]
    assert measures["radius"] > 0
    assert 0 < measures["ceiling"] <= 1 / 24
    assert measures["ceiling_shared"] == pytest.approx(measures["ceiling"] / (measures["k_shared"] * 4))


def test_signals_are_those_of_the_trace_and_within_their_error_bounds(written, cases):
    recorded = panel(trace.read(cases["fed-ade"].trace), "fed-ade", 0, 9)
    measures = written[1]["fed-ade"].measures
    assert measures["s_unc"] == pytest.approx(recorded.columns["s_unc"].sum(1).mean())
    assert measures["s"] == pytest.approx((measures["s_unc"] + measures["s_rep"]) / 2)
    assert measures["s_corrected"] < measures["s"]
    assert measures["unc_error"] <= measures["unc_error_bound"]
    assert measures["rep_error"] <= measures["rep_error_bound"]


def test_a_square_wave_is_as_long_as_its_jumps(written, cases):
    truth = trace.column(trace.where(trace.read(cases["source"].trace), timestep=2), "true_prior")
    jumps = np.abs(truth - 0.1).sum(1)
    assert written[1]["source"].measure("v_l1") == pytest.approx(4 * jumps.mean(), rel=1e-5)
    assert written[1]["source"].measure("changes_away") == 12


def test_a_replay_sees_the_signals_that_the_run_wrote(scenario_factory):
    scenario = scenario_factory(**SCENARIO)
    method = METHODS["fed-ade"](**METHOD)
    oracle = oracle_of(scenario, 0, np.arange(6), SETTINGS)
    ticking = clock(method, scenario)
    rows = list(ticking.run(ticking.beginning()))
    raw, corrected = replayed_signals(replay(ticking, oracle, ticking.maps.forward).summaries)
    for name, found in zip(("s_unc", "s_rep"), raw, strict=True):
        written_down = np.stack([step[name][oracle.clients] for step in rows], 1)
        np.testing.assert_allclose(found.numpy(), written_down, atol=1e-5)
    assert all((below <= above).all() for below, above in zip(corrected, raw, strict=True))


def test_what_was_measured_is_not_measured_again(written, cases, monkeypatch):
    def never(*_):
        raise AssertionError("replayed")

    monkeypatch.setattr(theory, "replay", never)
    again = write_theory(list(cases.values()), written[0], SETTINGS)
    assert [one.measures for one in again] == [one.measures for one in written[1].values()]
    with pytest.raises(AssertionError, match="replayed"):
        write_theory(list(cases.values()), written[0], SETTINGS.model_copy(update={"moment": "pre"}))


def test_a_trace_of_another_run_is_refused(cases, tmp_path):
    def shaken(table: pa.Table) -> pa.Table:
        accuracy = 1 - trace.column(table, "accuracy_post")
        return table.set_column(table.column_names.index("accuracy_post"), "accuracy_post", pa.array(accuracy))

    with pytest.raises(FedadeError, match=r"other\.parquet: run again, source, squ, T = 9, seed 0 differs"):
        write_theory([rewritten(cases["source"], tmp_path / "other.parquet", shaken)], tmp_path, SETTINGS)


def test_an_unfinished_trace_is_refused(cases, tmp_path):
    cut = rewritten(cases["source"], tmp_path / "cut.parquet", lambda table: table.slice(0, 20))
    with pytest.raises(FedadeError, match="finish its run first"):
        write_theory([cut], tmp_path, SETTINGS)


def test_nothing_and_what_is_no_trace_are_refused(cases, tmp_path):
    with pytest.raises(FedadeError, match="no finished run"):
        write_theory([], tmp_path)
    (tmp_path / "no.parquet").write_bytes(b"nothing")
    with pytest.raises(FedadeError, match="not a readable trace"):
        write_theory([cases["source"]._replace(trace=tmp_path / "no.parquet")], tmp_path)


def test_shuffled_rates_need_the_run_that_they_come_from(cases, tmp_path):
    experiment = cases["fed-ade"].experiment.model_copy(update={"methods": ("shuffled-lr",)})
    renamed = rewritten(
        cases["fed-ade"],
        tmp_path / "shuffled.parquet",
        lambda table: table.set_column(0, "method", pa.array(["shuffled-lr"] * len(table))),
    )
    with pytest.raises(FedadeError, match="takes its rates from fed-ade"):
        write_theory([renamed._replace(experiment=experiment)], tmp_path, SETTINGS)


@pytest.mark.parametrize(("horizon", "wanted"), [(9, 4), (9, 9), (5, 40), (100, 7)])
def test_observed_timesteps_are_one_of_each_part_and_stand_for_all(scenario_factory, horizon, wanted):
    scenario = scenario_factory(**{**SCENARIO, "num_timesteps": horizon})
    found = oracle_of(scenario, 3, np.arange(6), TheorySettings(timesteps=wanted, clients=50))
    assert len(found.timesteps) == min(horizon, wanted)
    assert found.weights.sum() == horizon
    ends = np.cumsum(found.weights)
    assert ((found.timesteps > ends - found.weights) & (found.timesteps <= ends)).all()
    assert found.clients.tolist() == list(range(6))


def test_fresh_draws_are_large_and_apart_from_the_stream(oracle):
    batch = oracle.fresh(3)
    assert batch.labels.shape == (3, 500)
    assert not torch.equal(batch.inputs, oracle.fresh(3, "other").inputs)
    assert torch.equal(batch.inputs, oracle.fresh(3).inputs)


def test_true_features_are_the_limit_of_large_draws(oracle):
    network, parameters = oracle.deployment.network, oracle.deployment.parameters
    means = oracle.class_means(network.represent(parameters, oracle.population(oracle.views(9)[0])))
    many = oracle.settings.model_copy(update={"samples": 20_000})
    batch = oracle_of(oracle.scenario, 0, oracle.clients[:1], many).fresh(9)
    drawn = mean_feature(network.represent(parameters, batch.inputs[0]))
    torch.testing.assert_close(batch.prior[0] @ means, drawn, atol=0.01, rtol=0)


def test_the_best_head_is_better_than_the_deployed_one_on_average(oracle):
    batch = oracle.fresh(9)
    network, parameters = oracle.deployment.network, oracle.deployment.parameters
    features = network.represent(parameters, batch.inputs[0])
    head = oracle.best_head(oracle.views(9)[0], oracle.streams.prior(oracle.clients, 9)[0])
    fitted, deployed = head_probabilities(head, features), network.classify(parameters, features).softmax(-1)
    labels = batch.labels[0]
    assert losses(fitted, labels)[0].mean() < losses(deployed, labels)[0].mean()


def test_a_certain_mistake_costs_a_finite_loss():
    cross_entropy, error = losses(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert cross_entropy.item() == pytest.approx(15.9, abs=0.1)
    assert error.item() == 1


def test_models_are_found_in_states_that_show_one(scenario_factory):
    scenario = scenario_factory()
    deployment = scenario.deployment
    for name, shows in (
        ("fed-ade", True),
        ("source", True),
        ("oracle-finetune", True),
        ("tent", True),
        ("cotta", False),
    ):
        method = METHODS[name]()
        world = clock(method, scenario).beginning()
        found = client_models(deployment, tree.take(world.clients, 0), tree.take(world.server, 0))
        assert (found is not None) == shows, name
        if found is not None:
            assert torch.equal(found.distances(8), torch.zeros(8))


def test_who_moves_a_model_is_seen_to_move(scenario_factory):
    models = client_models(scenario_factory().deployment, {"head.bias": torch.ones(2, 10)}, ())
    bias = models.deployment.parameters["head.bias"]
    torch.testing.assert_close(models.distances(2), (1 - bias).norm().expand(2))


def test_block_norms_of_a_known_hessian_are_found():
    matrix = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    hessian = matrix @ matrix.mT

    def loss(point: dict[str, torch.Tensor]) -> torch.Tensor:
        whole = torch.cat([point["body.a"].flatten(), point["head.b"]])
        return whole @ hessian @ whole / 2

    curvature = Curvature(loss, {"body.a": torch.ones(1, 2), "head.b": torch.ones(3)})
    for rows, columns, block in (
        (["body.a"], ["body.a"], hessian[:2, :2]),
        (["head.b"], ["head.b"], hessian[2:, 2:]),
        (["body.a"], ["head.b"], hessian[:2, 2:]),
    ):
        assert curvature.block_norm(rows, columns) == pytest.approx(float(torch.linalg.matrix_norm(block, 2)), rel=0.03)


def test_equal_clients_have_equal_gradients(oracle):
    batch = oracle.fresh(9)
    alike = type(batch)(*(part[:1].expand(2, *part.shape[1:]) for part in batch.tensors))
    models = client_models(oracle.deployment, (), {})
    same, different = landscape(models, alike), landscape(models, batch)
    assert same.spreads[0] == pytest.approx(0, abs=1e-8)
    assert different.spreads[0] > 0.01
    assert same.gradient_norm**2 >= same.squared_norms[0]


def test_finetuning_lowers_the_loss_and_needs_no_convexity(cases, tmp_path, monkeypatch):
    monkeypatch.setattr(theory_finetune, "STEPS", 10)
    settings = TheorySettings(clients=2, timesteps=2, points=1, comparators=("finetune",))
    (found,) = write_theory([cases["source"]], tmp_path, settings)
    assert found.measure("regret_finetune") > 0
    assert "regret_prior" not in found.measures


def test_corrupted_inputs_move_features_and_no_priors(cache, tmp_path):
    case = run_case(tmp_path, "source", kind="covariate", num_timesteps=4, schedule="lin")
    (found,) = write_theory([case], tmp_path / "theory", SETTINGS.model_copy(update={"timesteps": 2}))
    assert found.measure("v_l1") == 0
    assert found.measure("v_rep") > 0
    assert found.measure("regret_head_convex") > 0


def test_a_model_looked_at_before_its_timestep_lags_behind(cases, tmp_path):
    before = SETTINGS.model_copy(update={"moment": "pre", "timesteps": 9})
    (found,) = write_theory([cases["oracle-prior"]], tmp_path, before)
    assert found.measure("regret_prior") > 0


def test_the_comparators_that_can_be_asked_for_are_those_that_are_explained():
    assert get_args(Comparator) == tuple(COMPARATORS)


def test_every_measure_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    missing = [
        name for name in MEASURES if f"`{name}`" not in text and not name.startswith(("regret_", "loss_", "interval_"))
    ]
    assert not missing
