"""From texts to a deployment: training, checkpoints, the measures and what a deployment is stored under."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING
from fedade.data.dataset import Dataset, Labelled
from fedade.models.text import VOCABULARY, build_text
from fedade.scenarios.deploying import deploy, weights_key
from fedade.scenarios.partition import Partition, partition
from fedade.scenarios.pretraining import pretrain
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

CLASSES, LENGTH, TEXTS = 4, 8, 240
RECIPE = PretrainingSettings(
    epochs=4, batch_size=8, learning_rate=2e-2, weight_decay=0.0, optimiser="adamw", clip=1.0
)  # fmt: skip
SETTINGS = ScenarioSettings(
    dataset="topics", model="tiny-llama", train_size=160, reference_size=20, pretraining=RECIPE
)  # fmt: skip


def topics(texts: int, seed: int) -> Labelled:
    """Texts of random words of a class's own, among words that all classes use."""
    generator = np.random.default_rng(seed)
    labels = np.arange(texts) % CLASSES
    own = generator.integers(0, 5, (texts, LENGTH)) * CLASSES + labels[:, None]
    common = generator.integers(CLASSES * 5, VOCABULARY, (texts, LENGTH))
    tokens = np.where(generator.random((texts, LENGTH)) < 0.6, own, common)
    lengths = generator.integers(5, LENGTH + 1, (texts, 1))
    return Labelled(np.where(np.arange(LENGTH) < lengths, tokens, PADDING).astype(np.int32), labels)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset("topics", tuple("abcd"), topics(TEXTS, 0), topics(40, 1))


@pytest.fixture(scope="module")
def parts(dataset: Dataset) -> Partition:
    return partition(dataset, SETTINGS)


def quiet(_done: int, _of: int) -> None:
    return None


def test_a_deployment_learns_its_texts_and_holds_no_base(dataset, parts, tmp_path):
    deployment = deploy(dataset, parts, SETTINGS, "cpu", tmp_path, quiet)
    assert deployment.accuracy > 0.7
    assert deployment.parameters.keys() == deployment.network.initial_parameters().keys()
    assert deployment.initial_feature.shape == (32,)
    assert deployment.reference.inputs.dtype is torch.int32
    assert deployment.reference.inputs.shape == (20, LENGTH)
    torch.testing.assert_close(deployment.confusion.sum(0), torch.ones(CLASSES))
    stored = sorted(path for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert {path.suffix for path in stored} == {".weights", ".safetensors"}
    assert all(path.stat().st_size < 200_000 for path in stored)
    again = deploy(dataset, parts, SETTINGS, "cpu", tmp_path, quiet)
    assert all(torch.equal(value, again.parameters[name]) for name, value in deployment.parameters.items())


def test_training_that_is_interrupted_continues_to_the_same_numbers(parts, tmp_path):
    class KilledError(Exception):
        pass

    def interrupt(done: int, _of: int) -> None:
        if done == 3:
            raise KilledError

    def trained(checkpoint: Path, progress):
        return pretrain(build_text("tiny-llama", CLASSES), parts.trained, RECIPE, "cpu", progress, checkpoint)

    whole = trained(tmp_path / "whole", quiet)
    with pytest.raises(KilledError):
        trained(tmp_path / "broken", interrupt)
    assert (tmp_path / "broken").exists()
    continued = trained(tmp_path / "broken", quiet)
    assert not (tmp_path / "broken").exists()
    for name, value in whole.items():
        torch.testing.assert_close(continued[name], value, msg=name)


def test_scales_stay_and_adapters_move(parts):
    network = build_text("tiny-llama", CLASSES)
    before = network.initial_parameters()
    after = pretrain(network, parts.trained, RECIPE.model_copy(update={"epochs": 1}), "cpu", quiet)
    trainable = network.trainable()
    for name, value in before.items():
        assert torch.equal(after[name], value) == (name not in trainable), name


def test_the_key_tells_bases_and_adapters_apart(parts):
    def key(**adapters: object) -> str:
        return weights_key(build_text("tiny-llama", CLASSES, **adapters), parts.trained, SETTINGS)

    assert len({key(), key(), key(rank=4), key(first_layer=1), key(shared_layers=1), key(seed=1)}) == 5


def test_the_reference_set_is_encoded_once(dataset, parts, tmp_path):
    settings = SETTINGS.model_copy(
        update={"text": SETTINGS.text.model_copy(update={"first_layer": 1}),
                "pretraining": RECIPE.model_copy(update={"epochs": 1})}
    )  # fmt: skip
    deployment = deploy(dataset, parts, settings, "cpu", tmp_path, quiet)
    assert deployment.reference.inputs.shape == (20, LENGTH, 32)
    assert deployment.reference.inputs.is_floating_point()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "small-cnn"}, r"scenario.model: small-cnn does not read the texts of topics; use tiny-llama or hf:"),
        ({"pretraining": RECIPE.model_copy(update={"augment": True})}, r"pretraining.augment: .* are for images"),
    ],
)
def test_what_does_not_fit_texts_is_refused(dataset, parts, tmp_path, changes, told):
    with pytest.raises(FedadeError, match=told):
        deploy(dataset, parts, SETTINGS.model_copy(update=changes), "cpu", tmp_path, quiet)
