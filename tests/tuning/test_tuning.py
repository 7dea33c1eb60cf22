import math

import numpy as np
import pytest
import torch

from fedade.core.deployment import Reference
from fedade.core.errors import FedadeError
from fedade.engine.pending import collect
from fedade.maths.priors.estimators import confusion_matrix
from fedade.methods.fed_ade import FedAde
from fedade.methods.prior_reweighting import PriorReweighting
from fedade.methods.source import Source
from fedade.methods.tent import Tent
from fedade.parts.rates import Paces, RateBounds
from fedade.scenarios.settings import ScenarioSettings
from fedade.tuning import trials as trials_module
from fedade.tuning.drift import schedule_of, simulated_drift, without_shift
from fedade.tuning.searches import TRIALS, first_descents, stages
from fedade.tuning.trials import Attempt, Tuning, fitted, tune, tuned_from_store, tuning_key

from ..helpers import clock

SETTINGS = ScenarioSettings(num_clients=8, num_timesteps=4, samples=20, train_size=350, reference_size=50)


@pytest.fixture(scope="module")
def deployed(scenario_factory):
    scenario = scenario_factory()
    return scenario.deployment, scenario.references.pool


@pytest.fixture(scope="module")
def drift(deployed):
    return simulated_drift(*deployed, SETTINGS)


def rows_of(method, scenario):
    running = clock(method, scenario, participation=0.5)
    return collect(list(running.advance(running.beginning())))


def each(trial):
    """Runs methods one after the other, each by this function; one that raises is told of."""

    def run(methods, scenario):
        for method in methods:
            try:
                yield trial(method, scenario)
            except FedadeError as error:
                yield error

    return run


run = each(rows_of)


def test_simulated_streams_and_labelled_data_are_apart_and_held_out(drift, deployed):
    pool, rows, _ = drift.references
    streamed = {row for own in drift.streams.rows_by_class for row in own.tolist()}
    assert pool is deployed[1]
    assert streamed.isdisjoint(rows.flatten().tolist())


def test_some_clients_follow_each_schedule_and_some_none(drift):
    moved = np.abs(drift.streams.schedule).sum(1) > 0
    assert [bool(value) for value in moved] == [schedule_of(client) is not None for client in range(8)]
    assert not without_shift(drift).streams.schedule.any()


@pytest.mark.parametrize(
    "method", [FedAde(), Tent(), FedAde(optimiser={"name": "adamw"})], ids=["sgd", "tent", "adamw"]
)
def test_every_method_gets_as_many_trials(drift, method):
    assert sum(len(stage.candidates(method)) for stage in stages(method, drift)) == TRIALS


def test_paces_of_shared_layers_are_not_tried_where_no_step_moves_them(drift):
    last = [list(stages(FedAde(joint_epochs=epochs), drift))[-1].candidates(FedAde()) for epochs in (1, 0)]
    joint, alone = [{candidate["paces"].shared for candidate in candidates} for candidates in last]
    assert len(joint) == 4
    assert len(alone) == 1


def test_the_unit_of_rates_is_what_a_first_step_of_the_optimiser_would_remove(drift):
    deployment, priors = drift.deployment, drift.deployment.source_prior.roll(1).unsqueeze(0)
    labelled = Reference(*(part[:50] for part in drift.references.pool))
    plain = first_descents(deployment, labelled, priors, FedAde())
    assert all(value >= 0 for value in plain.values())
    signs = first_descents(deployment, labelled, priors, FedAde(optimiser={"name": "adamw"}))
    assert signs["weights"] > plain["weights"]


def test_the_search_finds_more_than_the_deployed_model_has_and_can_be_stored(drift, tmp_path):
    found = tune(FedAde(personal_step="all", batch_size=50), drift, run)
    assert len(found.trials) == TRIALS
    best = max(trial.accuracy for trial in found.trials)
    assert best >= found.source
    found.save(tmp_path / "found.json")
    assert Tuning.load(tmp_path / "found.json") == found
    method = fitted(FedAde(constants="calibrated", personal_step="all", batch_size=50), found)
    assert method.constants == "set"
    assert method.rate.high == found.chosen["rate"]["high"]


def test_what_is_set_is_never_overwritten():
    found = Tuning({"anchor": 0.5, "rate": {"low": 1.0, "mid": 2.0, "high": 3.0}}, (), 0.0)
    method = fitted(FedAde(constants="calibrated", rate=RateBounds(low=0, mid=0, high=0)), found)
    assert (method.anchor, method.rate.high) == (0.5, 0)


def test_a_trial_that_diverges_is_lost_and_a_search_without_survivors_says_so(drift, monkeypatch):
    attempts = []

    def falls_at_first(method, scenario):
        attempts.append(method)
        if len(attempts) == 2:
            raise FedadeError("diverged")
        return rows_of(method, scenario)

    found = tune(Tent(), drift, each(falls_at_first))
    assert math.isnan(found.trials[0].accuracy)
    assert not math.isnan(found.trials[1].accuracy)

    def falls(method, scenario):
        if isinstance(method, Tent):
            raise FedadeError("diverged")
        return rows_of(method, scenario)

    with pytest.raises(FedadeError, match="no trial of Tent survived"):
        tune(Tent(), drift, each(falls))


def test_where_every_trial_is_worse_than_the_deployed_model_it_stands_still(drift):
    def worse(method, scenario):
        rows = rows_of(Source(), scenario)
        adapting = isinstance(method, FedAde)
        return {**rows, "s": np.zeros(len(rows["client"])), "accuracy_post": rows["accuracy_post"] - 0.1 * adapting}

    assert tune(FedAde(personal_step="all"), drift, each(worse)).chosen["rate"] == {"low": 0, "mid": 0, "high": 0}


def test_a_trial_is_judged_where_data_drift_and_harm_elsewhere_outweighs_a_gain(drift):
    """More accurate by 2 points under drift, but 2 points worse for clients whose data stay as they were."""

    def adapted(method, scenario):
        rows = rows_of(Source(), scenario)
        drifts = np.array([schedule_of(client) is not None for client in rows["client"].tolist()])
        harmful = isinstance(method, FedAde) and method.rate.low > 0
        gained = np.where(drifts, 0.02, -0.02) * harmful
        return {**rows, "s": np.zeros(len(drifts)), "accuracy_post": rows["accuracy_post"] + gained}

    tuning = tune(FedAde(personal_step="all"), drift, each(adapted))
    assert tuning.trials[0].accuracy == pytest.approx(tuning.source + 0.02)
    assert tuning.trials[0].at_rest == pytest.approx(-0.02)
    assert tuning.chosen["rate"]["high"] == 0


def test_what_simulated_clients_know_was_not_measured_on_what_they_meet(deployed, drift):
    """The confusion matrix is that of their labelled half alone."""
    _, held_out = deployed
    streamed = np.concatenate(drift.streams.rows_by_class)
    others = np.setdiff1d(np.arange(len(held_out.labels)), streamed)
    network, known = drift.deployment.network, drift.deployment
    logits = network.logits(known.parameters, held_out.inputs[others])
    expected = confusion_matrix((logits / known.temperature).softmax(-1), held_out.labels[others])
    torch.testing.assert_close(known.confusion, expected)


def test_methods_without_free_constants_are_refused(drift):
    with pytest.raises(FedadeError, match="no constants to calibrate"):
        tune(PriorReweighting(), drift, run)


def test_a_tuning_is_found_once_and_another_protocol_asks_again(deployed, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(trials_module, "tune", lambda *_: calls.append(1) or Tuning({}, (Attempt({}, 0.5, 0.0),), 0.5))
    for rounds in (1, 1, 2):
        key = tuning_key(FedAde(), deployed[0].digest, SETTINGS, {"rounds": rounds})
        tuned_from_store(FedAde(), *deployed, SETTINGS, run, tmp_path / key)
    assert len(calls) == 2


def test_calibrated_in_place_of_a_rate_is_understood():
    assert FedAde(rate="calibrated").constants == "calibrated"


def test_without_shared_layers_to_move_nothing_is_exchanged(scenario_factory):
    scenario = scenario_factory(num_timesteps=2)
    method = FedAde(paces=Paces(shared=0), personal_step="all", rate=RateBounds(low=1, mid=1, high=1), batch_size=50)
    assert not method.has_rounds
    rows = rows_of(method, scenario)
    assert (rows["bytes_sent"] == 0).all()
    assert not np.array_equal(rows["accuracy_post"], rows["accuracy_pre"])
