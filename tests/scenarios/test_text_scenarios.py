"""Texts as a scenario, and clients with classes of their own."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.core.tokens import PADDING
from fedade.data.known import lama
from fedade.experiments.presets import PRESETS, PRINTED_TEXTS
from fedade.experiments.settings import experiment_from
from fedade.scenarios.building import build_scenario, load_dataset
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import client_supports, initial_priors, target_priors

from ..trex_files import write_release

DISJOINT = ScenarioSettings(supports="disjoint", num_clients=5)


def silent(done: int, of: int) -> None:
    """Shows no progress."""


@pytest.mark.parametrize(("clients", "sizes"), [(5, [8, 8, 8, 8, 9]), (41, [1] * 41), (1, [41]), (3, [13, 14, 14])])
def test_disjoint_supports_share_out_every_class_once(clients: int, sizes: list[int]) -> None:
    settings = DISJOINT.model_copy(update={"num_clients": clients})
    supports = client_supports(settings, Seeds(0), 41)
    assert [len(own) for own in supports] == sizes
    assert np.sort(np.concatenate(supports)).tolist() == list(range(41))


def test_supports_are_the_seeds_own() -> None:
    first, again, other = (client_supports(DISJOINT, Seeds(seed), 41) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


def test_priors_stay_on_a_clients_own_classes() -> None:
    supports = client_supports(DISJOINT, Seeds(3), 41)
    initial, target = (make(DISJOINT, Seeds(3), 41) for make in (initial_priors, target_priors))
    for client, own in enumerate(supports):
        assert np.flatnonzero(initial[client]).tolist() == own.tolist()
        assert initial[client, own] == pytest.approx(1 / len(own))
        assert set(np.flatnonzero(target[client])) <= set(own.tolist())
        assert target[client].sum() == pytest.approx(1)
    everywhere = initial_priors(DISJOINT.model_copy(update={"initial": "global"}), Seeds(3), 41)
    assert everywhere == pytest.approx(np.full((5, 41), 1 / 41))


def test_more_clients_than_classes_is_one_line_with_a_remedy() -> None:
    with pytest.raises(FedadeError, match=r"each of 5 clients.*there are 4; set scenario.num_clients to 4 or less"):
        client_supports(DISJOINT, Seeds(0), 4)


def test_images_can_have_disjoint_supports_and_another_seed_has_others(scenario_factory):
    scenario = scenario_factory(supports="disjoint", num_clients=5, samples=200)
    everyone = np.arange(5)
    elsewhere = scenario_factory(1, supports="disjoint", num_clients=5, samples=200, schedule="squ")
    for one, seed in ((scenario, 0), (elsewhere, 1)):
        supports = client_supports(one.streams.settings, Seeds(seed), 10)
        for timestep in (1, 4):
            batch = one.streams.draw(everyone, timestep)
            for labels, prior, own in zip(batch.labels, batch.prior, supports, strict=True):
                assert set(labels.tolist()) <= set(own.tolist())
                assert prior[torch.from_numpy(own)].sum() == pytest.approx(1)
    assert not np.array_equal(scenario.streams.initial_priors, elsewhere.streams.initial_priors)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> ScenarioSettings:
    """Made-up facts for the tiny model."""
    folder = tmp_path_factory.mktemp("facts")
    write_release(folder, per_relation=24)
    return ScenarioSettings(
        dataset="lama-trex",
        data_dir=folder,
        model="tiny-llama",
        supports="disjoint",
        num_clients=2,
        num_timesteps=2,
        samples=6,
        train_size=32,
        reference_size=8,
        text={"max_tokens": 16},
        pretraining={"epochs": 4, "batch_size": 16, "learning_rate": 1e-2, "optimiser": "adamw", "clip": 1.0},
    )


def test_a_scenario_of_texts_streams_tokens_of_the_clients_own_classes(texts: ScenarioSettings, tmp_path: Path) -> None:
    scenario = build_scenario(texts, 0, "cpu", tmp_path, silent)
    batch = scenario.streams.draw(np.arange(2), 1)
    assert batch.inputs.shape[:2] == (2, 6)
    assert batch.inputs.shape[2] <= 16
    assert batch.inputs.dtype == torch.int32
    assert batch.inputs.min() >= PADDING
    supports = client_supports(texts, Seeds(0), 4)
    for labels, own in zip(batch.labels, supports, strict=True):
        assert set(labels.tolist()) <= set(own.tolist())
    reference = scenario.deployment.reference
    assert torch.bincount(reference.labels).tolist() == [2] * 4
    logits = scenario.deployment.network.logits(scenario.deployment.parameters, batch.inputs[0])
    assert logits.shape == (6, 4)
    (tokens,) = (tmp_path / "tokens").iterdir()
    written = tokens.stat().st_mtime_ns
    build_scenario(texts, 1, "cpu", tmp_path, silent)
    assert tokens.stat().st_mtime_ns == written


def test_streams_meet_what_frozen_layers_made_of_the_texts(texts: ScenarioSettings, tmp_path: Path) -> None:
    plain = build_scenario(texts, 0, "cpu", tmp_path, silent)
    settings = texts.model_copy(update={"text": texts.text.model_copy(update={"first_layer": 1})})
    scenario = build_scenario(settings, 0, "cpu", tmp_path, silent)
    tokens = plain.streams.draw(np.arange(2), 1).inputs
    network = scenario.deployment.network
    assert torch.equal(scenario.streams.draw(np.arange(2), 1).inputs[0], network.encode(tokens[0]))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "small-cnn"}, "'lama-trex' holds texts, not images; choose a model that reads texts"),
        ({"dataset": "digits"}, "'digits' holds images, not texts"),
        ({"kind": "covariate"}, "covariate corrupts images, texts have no corruptions; choose label or none"),
    ],
)
def test_texts_and_images_do_not_mix(
    texts: ScenarioSettings, tmp_path: Path, changes: dict[str, str], complaint: str
) -> None:
    with pytest.raises(FedadeError, match=complaint):
        load_dataset(texts.model_copy(update=changes), tmp_path)


def test_the_preset_is_the_papers_text_benchmark() -> None:
    experiment = experiment_from(PRESETS["lama-label"]())
    scenario = experiment.scenario
    assert (scenario.num_clients, scenario.supports, experiment.protocol.rounds) == (5, "disjoint", 5)
    assert experiment.protocol.participation == 1
    assert scenario.train_size == 400 * lama.NUM_RELATIONS
    assert scenario.train_size < lama.LABELLED * lama.NUM_RELATIONS
    assert scenario.reference_size == 20 * lama.NUM_RELATIONS
    entry = next(entry for entry in experiment.methods if entry.method == "fed-ade")
    assert experiment.build_method(entry).constants == "calibrated"
    printed = experiment.build_method(entry.model_copy(update={"settings": PRINTED_TEXTS}))
    assert (printed.rate.low, printed.rate.high, printed.batch_size) == (1e-3, 1e-2, 4)
    assert (printed.constants, printed.optimiser.name, printed.joint_epochs) == ("set", "adamw", 1)
