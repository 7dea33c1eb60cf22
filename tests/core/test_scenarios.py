"""Streams, partition, pre-training and deployment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from fedade.checking.trials import SMALL
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.data.dataset import Labelled
from fedade.data.known.digits import digits
from fedade.models import build
from fedade.models.image import Pixels
from fedade.scenarios import deploying
from fedade.scenarios.building import build_scenario
from fedade.scenarios.partition import partition, source_prior
from fedade.scenarios.pretraining import flip_and_shift, pretrain
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

from ..helpers import with_streams

EVERYONE = np.arange(8)


@pytest.mark.parametrize("kind", ["label", "covariate", "both", "none"])
@pytest.mark.parametrize("schedule", ["lin", "sin", "squ", "ber"])
def test_a_kind_of_shift_moves_what_it_says_and_nothing_else(scenario_factory, kind, schedule):
    streams = scenario_factory(kind=kind, schedule=schedule, num_timesteps=25).streams
    batches = [streams.draw(EVERYONE, timestep) for timestep in range(1, 26)]
    priors = torch.stack([batch.prior for batch in batches])
    severities = torch.stack([batch.severity for batch in batches])
    assert torch.allclose(priors.sum(-1), torch.ones(25, 8))
    assert bool((priors - 0.1).abs().max() > 0.2) == (kind in ("label", "both"))
    assert bool(severities.max() > 2) == (kind in ("covariate", "both"))
    assert severities.min() == 0


def test_a_draw_has_an_address(scenario_factory):
    streams = scenario_factory(kind="both").streams
    whole = streams.draw(EVERYONE, 3)
    alone = streams.draw(np.array([5]), 3)
    assert torch.equal(whole.inputs[5], alone.inputs[0])
    assert not torch.equal(streams.draw(EVERYONE, 3, "fresh").inputs, whole.inputs)
    longer = scenario_factory(kind="both", num_clients=12).streams
    assert np.array_equal(longer.target_priors[:8], streams.target_priors)


def test_labels_follow_the_prior(scenario_factory):
    streams = scenario_factory(samples=4000, num_timesteps=2, schedule="lin").streams
    batch = streams.draw(EVERYONE, 2)
    for labels, prior in zip(batch.labels, batch.prior, strict=True):
        assert (torch.bincount(labels, minlength=10) / 4000 - prior).abs().max() < 0.03


def test_streams_never_hold_an_image_that_was_trained_on_or_held_out():
    dataset = digits()
    for settings in (
        ScenarioSettings(train_size=350),
        ScenarioSettings(kind="label"),
        ScenarioSettings(kind="covariate"),
        ScenarioSettings(source="exponential"),
    ):
        parts = partition(dataset, settings)
        images = [{image.tobytes() for image in part.inputs} for part in parts]
        assert not images[0] & images[1]
        assert not images[0] & images[2]
        assert not images[1] & images[2]


@pytest.mark.parametrize("source", ["uniform", "gaussian", "exponential"])
def test_the_training_images_follow_the_source_distribution(source):
    parts = partition(digits(), ScenarioSettings(source=source))
    prior = source_prior(source, 10)
    assert prior.sum() == pytest.approx(1)
    found = np.bincount(parts.trained.labels, minlength=10) / len(parts.trained)
    assert np.abs(found - prior).max() < 0.02
    if source != "uniform":
        assert prior.max() > 2 * prior.min()


def test_a_deployment_knows_its_source_prior(scenario_factory):
    deployment = scenario_factory(source="exponential").deployment
    assert deployment.source_prior[0] > 5 * deployment.source_prior[9]
    assert torch.allclose(deployment.confusion.sum(0), torch.ones(10), atol=1e-5)
    assert 0.05 < deployment.temperature < 20


def test_preparing_streams_copies_no_images(scenario_factory):
    streams = scenario_factory(num_clients=100, num_timesteps=100, samples=50).streams
    rows = [streams.rows(np.arange(100), timestep)[0] for timestep in range(1, 101)]
    assert all(found.shape == (100, 50) and found.dtype == np.int64 for found in rows)


def test_streams_of_another_seed_and_schedule_are_those_that_are_built_from_scratch(scenario_factory):
    beside = with_streams(scenario_factory(kind="both"), "squ", 7)
    built = scenario_factory(kind="both", schedule="squ", seed=7)
    assert beside.deployment is not built.deployment
    draws = (scenario.streams.draw(EVERYONE, 3).tensors for scenario in (beside, built))
    for one, other in zip(*draws, strict=True):
        assert torch.equal(one, other)
    first = scenario_factory(kind="both")
    assert with_streams(first, "squ", 7).streams.pool_at is first.streams.pool_at, "images are held once"


def tiny_network() -> Network:
    return build("small-cnn", (1, 8, 8), 10, Pixels([0.5], [0.25]), 0)


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_training_may_be_short(epochs):
    data = Labelled(digits().train.inputs[:60], digits().train.labels[:60])
    trained = pretrain(tiny_network(), data, PretrainingSettings(epochs=epochs), "cpu", lambda done, of: None)
    assert all(value.isfinite().all() for value in trained.values())


def test_training_that_was_killed_ends_with_the_same_weights(tmp_path):
    images, labels = digits().train.inputs[:60], digits().train.labels[:60]
    data = Labelled(images, labels)
    settings = PretrainingSettings(epochs=12, batch_size=16, augment=True)
    whole = pretrain(tiny_network(), data, settings, "cpu", lambda done, of: None)

    class KilledError(Exception):
        pass

    def kill(done: int, of: int) -> None:
        if done == 8:
            raise KilledError

    with pytest.raises(KilledError):
        pretrain(tiny_network(), data, settings, "cpu", kill, tmp_path / "training")
    assert (tmp_path / "training").exists()
    resumed = pretrain(tiny_network(), data, settings, "cpu", lambda done, of: None, tmp_path / "training")
    for name, value in whole.items():
        torch.testing.assert_close(value, resumed[name], rtol=1e-5, atol=1e-6)
    assert not (tmp_path / "training").exists()


def test_a_model_is_trained_once_and_different_ones_side_by_side(tmp_path, monkeypatch):
    together, trained = threading.Barrier(2), []

    def trains(network, data, recipe, *_: object) -> dict[str, torch.Tensor]:
        together.wait(20)  # until another model is being trained as well
        trained.append(recipe.seed)
        return network.initial_parameters()

    monkeypatch.setattr(deploying, "pretrain", trains)
    builds, one_at_a_time = deploying._network, threading.Lock()  # threads share PyTorch's generator

    def built(*given: object) -> Network:
        with one_at_a_time:
            return builds(*given)

    monkeypatch.setattr(deploying, "_network", built)

    def deployed(seed: int) -> Deployment:
        settings = ScenarioSettings(**{**SMALL, "pretraining": {"seed": seed}})
        return build_scenario(settings, 0, "cpu", tmp_path, lambda done, of: None).deployment

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(deployed, (0, 1, 0, 1)))) == 4
    assert sorted(trained) == [0, 1]


def test_augmentation_flips_and_shifts_each_image_by_its_own_numbers():
    images = torch.rand(2, 3, 16, 16)
    middle = torch.tensor([[0.5, 0.5, 0.2], [0.5, 0.5, 0.9]])
    moved = flip_and_shift(images, middle)
    assert torch.equal(moved[0], images[0])
    assert torch.equal(moved[1], images[1].flip(-1))
    shifted = flip_and_shift(images, torch.tensor([[0.0, 0.5, 0.2], [0.5, 0.0, 0.2]]))
    assert torch.equal(shifted[0, :, 2:], images[0, :, :-2])
    assert torch.equal(shifted[1, :, :, 2:], images[1, :, :, :-2])


def test_seeds_are_independent_of_order_and_neighbours():
    first = Seeds(3).generator("stream", client=1, timestep=2).random(4)
    Seeds(3).generator("stream", client=9, timestep=2).random(100)
    assert np.array_equal(first, Seeds(3).generator("stream", timestep=2, client=1).random(4))
    assert not np.array_equal(first, Seeds(4).generator("stream", client=1, timestep=2).random(4))
    assert not np.array_equal(first, Seeds(3).generator("other", client=1, timestep=2).random(4))


def test_a_split_goes_by_names():
    split = Split(("head.", "body.2"))
    assert split.is_shared("body.1.weight")
    assert not split.is_shared("body.2.weight")
    with pytest.raises(FedadeError, match="leaves no shared parameter"):
        Split(("body.", "head.")).check({"body.x": torch.ones(1), "head.x": torch.ones(1)})


def test_the_users_own_images_can_shift_in_every_way(tmp_path, scenario_factory, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog", "owl")):
        for part, count in (("train", 12), ("test", 6)):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(40 * label, 100 + 40 * label, (16, 16, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    scenario = scenario_factory(
        dataset=f"folder:{tmp_path / 'pictures'}",
        kind="both",
        schedule="squ",
        train_size=20,
        reference_size=9,
        reference="common",
    )
    batch = scenario.streams.draw(EVERYONE, 3)
    assert batch.inputs.shape == (8, 20, 3, 16, 16)
    assert scenario.deployment.num_classes == 3
    assert batch.severity.max() == 5
    clean = scenario.streams.pool_at(scenario.streams.corruptions[0], 0)
    assert not torch.equal(clean, scenario.streams.pool_at(scenario.streams.corruptions[0], 5))
