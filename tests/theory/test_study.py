"""Theory from runs: replays see what the run saw, regret is zero for who is the comparator, and what is refused."""

import csv
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.experiments.settings import MethodEntry
from fedade.methods import METHODS
from fedade.parts.objectives import OBJECTIVES
from fedade.parts.optimisers import SGD
from fedade.parts.training import Training
from fedade.theory import study as theory
from fedade.theory.measures import local_steps, panel, replayed_signals
from fedade.theory.oracle import oracle_of
from fedade.theory.replay import replay
from fedade.theory.study import Case, write_theory

from ..helpers import clock, context
from .theories import CHOSEN, FED_ADE, SCENARIO, SETTINGS, run_case


def rewritten(case: Case, path: Path, change) -> Case:
    trace.write(path, change(trace.read(case.trace)))
    return case._replace(trace=path)


def test_every_file_is_there(written):
    folder, results = written
    assert {path.name for path in folder.iterdir()} == {
        "theory.csv", "theory.md", "regret-T.png", "regret-S.png", "theory",
    }  # fmt: skip
    rows = list(csv.DictReader((folder / "theory.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [f"the {method}" for method in CHOSEN]
    assert float(rows[0]["bound"]) == pytest.approx(results["fed-ade"].measure("bound"), rel=1e-6)
    assert (folder / "regret-T.png").read_bytes().startswith(b"\x89PNG")


def test_regret_is_zero_for_the_method_that_is_its_comparator(written):
    measures = written[1]["oracle-prior"].measures
    assert measures["regret_prior"] == pytest.approx(0, abs=1e-6)
    assert measures["regret_01_prior"] == 0
    assert measures["interval_regret_prior_max"] == pytest.approx(0, abs=1e-6)
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
    assert measures["ceiling_shared"] == pytest.approx(measures["ceiling"] / (measures["k_shared"] * 2))
    assert measures["ceiling_personal"] == pytest.approx(measures["ceiling"] / (measures["k_personal"] * 4))


def test_the_bound_of_the_true_path_has_that_path_in_place_of_the_signal(written):
    measures = written[1]["fed-ade"].measures
    ratio = measures["bound_adaptation_l1"] / measures["bound_adaptation"]
    assert ratio == pytest.approx(math.sqrt(measures["v_l1"] / measures["s"]))
    others = measures["bound_optimisation"] + measures["bound_projection"]
    assert measures["bound_l1"] == pytest.approx(others + measures["bound_adaptation_l1"])
    assert measures["regret_head_convex"] <= measures["bound_l1"]


def test_both_sides_of_the_convergence_inequality_are_measured(written):
    measures = written[1]["fed-ade"].measures
    assert measures["descent"] > 0
    least = measures["loss"] / (measures["rate"] * measures["k_shared"] * 4)
    assert measures["descent_bound"] > least


@pytest.mark.parametrize("draws", ["epoch", "prior"])
@pytest.mark.parametrize("objective", ["bbse", "entropy"])
@pytest.mark.parametrize("batch_size", [8, 50])
def test_e_counts_the_steps_that_are_taken(oracle, draws, objective, batch_size):
    method = METHODS["fed-ade"](
        reference_draws=draws, objective=objective, batch_size=batch_size, joint_epochs=1, personal_epochs=2
    )
    deployment, uniform = oracle.deployment, oracle.deployment.source_prior
    inputs = oracle.streams.draw(np.arange(1), 1).inputs[0]
    training = Training(context(deployment, inputs), OBJECTIVES[objective], {"prior": uniform}, batch_size, SGD, draws)
    taken = [len(training.steps(range(epochs))) for epochs in (1, 3)]
    assert list(local_steps(method, oracle)[:2]) == taken


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
    method = METHODS["fed-ade"](**FED_ADE)
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
    entry = MethodEntry(name="shuffled-lr", method="shuffled-lr")
    experiment = cases["fed-ade"].experiment.model_copy(update={"methods": (entry,)})
    renamed = rewritten(
        cases["fed-ade"],
        tmp_path / "shuffled.parquet",
        lambda table: table.set_column(0, "method", pa.array(["shuffled-lr"] * len(table))),
    )
    with pytest.raises(FedadeError, match="takes its rates from fed-ade"):
        write_theory([renamed._replace(experiment=experiment)], tmp_path, SETTINGS)


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


def test_every_measure_is_documented(written):
    text = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    measures = {name for result in written[1].values() for name in result.measures}
    assert not [
        name for name in measures if f"`{name}`" not in text and not name.startswith(("regret_", "loss_", "interval_"))
    ]
