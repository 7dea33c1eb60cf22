"""The law of every kind of stream, and that each comes with every kind of shift."""

from typing import get_args

import numpy as np
import pytest
import torch

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.scenarios.settings import ScenarioSettings, StreamName
from fedade.scenarios.stream_laws import STREAMS
from fedade.scenarios.stream_laws.laid_out import correlated_labels, whole_counts
from fedade.scenarios.stream_laws.markov import axis, chain
from fedade.scenarios.stream_laws.own_pace import LateStreams, OwnPaceStreams
from fedade.scenarios.streams import client_schedules

EVERYONE = np.arange(8)


def test_every_name_has_a_law():
    assert get_args(StreamName) == tuple(STREAMS)


@pytest.mark.parametrize("kind", ["label", "covariate", "both", "none"])
@pytest.mark.parametrize("stream", STREAMS)
def test_a_law_comes_with_every_kind_of_shift(scenario_factory, stream, kind):
    streams = scenario_factory(kind=kind, stream=stream, num_timesteps=6, samples=15).streams
    batches = [streams.draw(EVERYONE, timestep) for timestep in range(1, 7)]
    severities = torch.stack([batch.severity for batch in batches])
    assert bool(severities.max() > 2) == (kind in ("covariate", "both"))
    for batch in batches:
        assert batch.inputs.shape[:2] == batch.labels.shape == (8, 15)
        torch.testing.assert_close(batch.prior.sum(-1), torch.ones(8))
        assert (batch.prior.gather(1, batch.labels) > 0).all()
    alone, whole = streams.draw(np.array([5]), 3), batches[2]
    assert torch.equal(alone.inputs[0], whole.inputs[5])
    assert not torch.equal(streams.draw(EVERYONE, 3, "fresh").inputs, whole.inputs)


def test_features_that_streams_know_are_those_of_their_inputs(scenario_factory):
    scenario = scenario_factory(kind="covariate", stream="mixed")
    batch, deployment = scenario.streams.draw(EVERYONE, 2), scenario.deployment
    expected = deployment.network.represent(deployment.parameters, batch.inputs[3])
    torch.testing.assert_close(batch.features(deployment)[3], expected, atol=1e-4, rtol=1e-3)


def test_continual_is_one_corruption_after_the_other_for_equal_times(scenario_factory):
    streams = scenario_factory(kind="covariate", stream="continual", num_timesteps=24).streams
    number = len(streams.corruptions)
    met = np.stack([streams.conditions(EVERYONE, timestep)[0][:, 0] for timestep in range(1, 25)], 1)
    severities = np.stack([streams.conditions(EVERYONE, timestep)[1] for timestep in range(1, 25)])
    assert (severities == 5).all()
    assert met[0].tolist() == np.repeat(np.arange(number), 24 // number).tolist()
    for client in EVERYONE:
        assert met[client].tolist() == ((met[0] + client) % number).tolist()


def test_returning_is_two_corruptions_in_turn_for_five_batches_each(scenario_factory):
    streams = scenario_factory(kind="covariate", stream="returning", num_timesteps=20).streams
    number = len(streams.corruptions)
    met, severities = (
        np.stack([streams.conditions(EVERYONE, timestep)[part][:, 0] for timestep in range(1, 21)], 1)
        for part in (0, 1)
    )
    assert (severities == 5).all()
    for client in EVERYONE:
        first, second = client % number, (client + 1) % number
        assert met[client].tolist() == 2 * (5 * [first] + 5 * [second])


def test_mixed_draws_a_corruption_for_each_sample(scenario_factory):
    streams = scenario_factory(kind="covariate", stream="mixed", samples=600).streams
    names, severities = streams.conditions(EVERYONE, 1)
    shares = np.bincount(names.ravel()) / names.size
    assert np.abs(shares - 1 / len(streams.corruptions)).max() < 0.02
    assert (severities == 5).all()


@pytest.mark.parametrize(("classes", "batch", "distinct", "within"), [(10, 50, 1.29, 0.1), (100, 50, 13.2, 1.0)])
def test_correlated_batches_hold_as_many_classes_as_rottas(classes, batch, distinct, within):
    counts = np.full(classes, 10_000 // classes)
    found = []
    for seed in range(5):
        labels = correlated_labels(counts, np.random.default_rng(seed))
        assert (np.bincount(labels, minlength=classes) == counts).all()
        found.append(np.mean([len(np.unique(labels[start : start + batch])) for start in range(0, 10_000, batch)]))
    assert np.mean(found) == pytest.approx(distinct, abs=within)


def test_a_correlated_stream_has_every_class_alike_and_tells_its_true_frequencies(scenario_factory):
    streams = scenario_factory(kind="covariate", stream="correlated", num_timesteps=10).streams
    batches = [streams.draw(EVERYONE, timestep) for timestep in range(1, 11)]
    labels = torch.cat([batch.labels for batch in batches], 1)
    assert all((torch.bincount(row, minlength=10) == 20).all() for row in labels)
    assert batches[0].prior.max() > 0.5
    torch.testing.assert_close(batches[0].prior[0] * 20, torch.bincount(batches[0].labels[0], minlength=10).float())


def test_whole_counts_sum_to_their_total():
    assert whole_counts(np.array([0.5, 0.25, 0.25]), 7).tolist() == [3, 2, 2]
    assert whole_counts(np.array([1.0, 1.0, 1.0]), 10).sum() == 10


@pytest.mark.parametrize("kind", ["label", "none"])
def test_once_gives_no_image_twice(scenario_factory, kind):
    streams = scenario_factory(kind=kind, stream="once", num_timesteps=15).streams
    for client in (0, 5):
        rows = np.concatenate([streams.rows(np.array([client]), timestep)[0][0] for timestep in range(1, 16)])
        assert len(np.unique(rows)) == len(rows) == 300
    assert not np.array_equal(streams.rows(np.array([0]), 1)[0], streams.rows(np.array([5]), 1)[0])


def test_once_needs_as_many_images_as_it_gives(scenario_factory):
    with pytest.raises(FedadeError, match=r"scenario.stream: once needs 200000 images .*lower scenario.samples"):
        scenario_factory(stream="once", samples=2000, num_timesteps=100)


def test_at_its_own_pace_each_client_has_a_schedule_speed_and_start_of_its_own():
    settings = ScenarioSettings(num_clients=40, num_timesteps=60)
    paths = OwnPaceStreams.schedules(settings, Seeds(1))
    assert paths.shape == (40, 61)
    assert ((paths >= 0) & (paths <= 1)).all()
    assert (paths[:, 0] == 0).all()
    assert len(np.unique(paths, axis=0)) > 35
    assert len(np.unique(client_schedules(settings, Seeds(1)), axis=0)) == 1
    starts = (paths > 0).argmax(1)
    assert starts.max() > 5 > starts.min()
    assert np.array_equal(paths[:8], OwnPaceStreams.schedules(settings.model_copy(update={"num_clients": 8}), Seeds(1)))


def test_half_of_the_clients_are_late_and_come_at_even_distances():
    settings = ScenarioSettings(num_clients=20, num_timesteps=40)
    first = LateStreams.joining(settings, Seeds(1))
    assert np.sort(first).tolist() == [1] * 10 + list(range(4, 32, 3))
    other = LateStreams.joining(settings, Seeds(2))
    assert not np.array_equal(first, other)
    assert np.array_equal(np.sort(first), np.sort(other))
    assert LateStreams.joining(ScenarioSettings(num_clients=1, num_timesteps=5), Seeds(1)).tolist() == [1]


def _runs(states):
    """Lengths of runs of equal states, and which state each is of."""
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    return np.diff(np.append(starts, len(states))), states[starts]


@pytest.mark.parametrize(("letters", "stay", "ratio"), [("i1", 0.1, 1.0), ("n1", 0.95, 1.0), ("nu", 0.95, 10.0)])
def test_a_free_chain_stays_in_its_head_and_is_imbalanced_as_its_letters_say(letters, stay, ratio):
    classes, still = axis(10, letters, 0.95, 10.0), axis(1, "i1", 0.85, 5.0)
    assert classes.free
    labels, _ = chain(classes, still, 200_000, np.random.default_rng(3))
    counts = np.bincount(labels, minlength=10)
    assert counts[0] / counts[-1] == pytest.approx(ratio, rel=0.12)
    lengths, states = _runs(labels)
    assert lengths[states == 0].mean() == pytest.approx(1 / (1 - stay), rel=0.05)


def test_where_chances_to_stay_cannot_give_the_law_quotas_do():
    classes, corruptions = axis(10, "iu", 0.95, 10.0), axis(15, "1u", 0.85, 5.0)
    assert not classes.free
    assert not corruptions.free
    labels, names = chain(classes, corruptions, 30_000, np.random.default_rng(0))
    counts = np.bincount(labels, minlength=10)
    assert counts[0] / counts[-1] == pytest.approx(10, rel=0.02)
    lengths, states = _runs(names)
    assert states.tolist() == list(range(15))  # one corruption after the other
    assert lengths[0] / lengths[-1] == pytest.approx(5, rel=0.02)


def test_a_quota_of_one_axis_leaves_the_other_its_own_law():
    classes, corruptions = axis(10, "n1", 0.95, 10.0), axis(5, "11", 0.85, 5.0)
    labels, names = chain(classes, corruptions, 20_000, np.random.default_rng(0))
    assert np.bincount(names).tolist() == [4000] * 5
    assert _runs(labels)[0].mean() == pytest.approx(20, rel=0.1)


def test_markov_chains_move_only_what_the_kind_of_shift_says(scenario_factory):
    made = {
        kind: scenario_factory(kind=kind, stream="markov", markov="nunu", num_timesteps=40, samples=50).streams
        for kind in ("covariate", "both", "label")
    }
    shares = {}
    for kind, streams in made.items():
        labels = streams.labels_of(3)
        shares[kind] = np.bincount(labels, minlength=10).max() / len(labels), _runs(labels)[0].mean()
    most, mean_run = zip(shares["covariate"], shares["both"], strict=True)
    assert most[0] < 0.13 < most[1]
    assert mean_run[0] < 1.2 < 5 < mean_run[1]
    assert _runs(made["both"].conditions(np.array([3]), 1)[0][0])[0].mean() > 2
    heads = {np.bincount(made["both"].labels_of(client)).argmax() for client in range(8)}
    assert len(heads) > 2
