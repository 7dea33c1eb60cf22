"""Models that are brought with their weights: never trained, split by themselves, and noticed when they change."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedade
from fedade.core.errors import FedadeError
from fedade.experiments.identifying import identified_experiment
from fedade.experiments.settings import experiment_from
from fedade.flower.bundle import read_bundle, write_bundle
from fedade.scenarios.building import build_testbed
from fedade.scenarios.own_models import identified
from fedade.scenarios.settings import ScenarioSettings

from ..adapter.networks import MODELS as NETWORKS
from ..adapter.networks import Sample, labels_for, made

pytestmark = [
    pytest.mark.usefixtures("without_reports"),
    # Which is a test of its own: most networks here have random weights.
    pytest.mark.filterwarnings("ignore:.*no more than by chance:RuntimeWarning"),
]


class Nearest(nn.Module):
    """Tells three classes apart by their centres; an import path that users would have."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.logits = nn.Linear(6, 3)
        with torch.no_grad():
            self.body.weight.copy_(torch.eye(6))
            self.body.bias.zero_()
            self.logits.weight.copy_(4 * torch.eye(3, 6))
            self.logits.bias.zero_()

    def forward(self, rows):
        return self.logits(torch.relu(self.body(rows)))


class Shuffled(Nearest):
    """Other weights: every class is taken for the next."""

    def __init__(self) -> None:
        super().__init__()
        self.logits.weight.data = self.logits.weight.data.roll(1, 0)


@pytest.fixture
def users(monkeypatch, tmp_path):
    """A module of the user's, and a table in a file; settings that name both."""
    module = types.ModuleType("users_module")
    module.model = Nearest
    monkeypatch.setitem(sys.modules, "users_module", module)
    labels = np.arange(240) % 3
    inputs = np.random.default_rng(0).normal(size=(240, 6)) + 2 * np.eye(3, 6)[labels]
    np.savez(tmp_path / "table.npz", inputs=inputs, labels=labels)
    return module


def settings(tmp_path: Path, **changes: object) -> ScenarioSettings:
    return ScenarioSettings(**{
        "dataset": f"arrays:{tmp_path / 'table.npz'}", "model": "import:users_module:model", "pretraining": "none",
        "num_clients": 3, "num_timesteps": 2, "samples": 8, "reference_size": 30, **changes,
    })  # fmt: skip


def testbed(settings: ScenarioSettings, cache: Path):
    return build_testbed(settings, "cpu", cache, lambda done, of: None)


testbed.__test__ = False


def test_the_weights_are_used_as_they_are(users, tmp_path):
    deployment = testbed(settings(tmp_path), tmp_path / "cache").deployment
    rows = torch.rand(5, 6)
    torch.testing.assert_close(deployment.network.logits(deployment.parameters, rows), Nearest()(rows))
    assert deployment.accuracy > 0.8
    assert len(deployment.reference.labels) == 30


def test_what_is_held_out_is_never_streamed(users, tmp_path):
    built = testbed(settings(tmp_path), tmp_path / "cache")
    pool = {tuple(row) for row in built.pool_at("", 0).tolist()}
    assert len(pool) == 180
    assert not pool & {tuple(row) for row in built.deployment.reference.inputs.tolist()}


def test_changed_weights_are_measured_again(users, tmp_path):
    def found() -> tuple[float, int]:
        deployment = testbed(settings(tmp_path), tmp_path / "cache").deployment
        return float(deployment.accuracy), len(list((tmp_path / "cache" / "models").glob("*.safetensors")))

    first = found()
    assert found() == first == (first[0], 1), "the second time it is read"

    users.model = Shuffled
    accuracy, files = found()
    assert accuracy < first[0] - 0.5
    assert files == 2


def test_a_run_is_named_by_weights_code_and_data(users, tmp_path):
    def address() -> str:
        from fedade.experiments.cell import cells_of

        written = settings(tmp_path).model_dump(mode="json")
        (cell,) = cells_of(identified_experiment(experiment_from({"scenario": written, "methods": ["source"]})))
        return cell.address

    class Another(Nearest):
        def forward(self, rows):
            return super().forward(rows) + 1

    addresses = [address()]
    assert address() == addresses[0]
    users.model = Another
    addresses.append(address())
    users.model = lambda: Nearest().requires_grad_(False)
    assert address() == addresses[0], "another way to the same weights"
    np.savez(tmp_path / "table.npz", inputs=np.random.default_rng(1).normal(size=(240, 6)), labels=np.arange(240) % 3)
    addresses.append(address())
    assert len(set(addresses)) == 3


def test_a_run_that_named_other_weights_is_refused(users, tmp_path):
    named = identified(settings(tmp_path))
    assert identified(named) == named
    users.model = lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    with pytest.raises(FedadeError, match=r"scenario.model: import:users_module:model has changed \(weights_digest"):
        identified(named)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_what_can_be_deployed_can_be_run(name, users, tmp_path, cache):
    if name in ("bert", "vision transformer"):
        pytest.importorskip("transformers")
    sample = made(name)
    labels = labels_for(sample)
    np.savez(tmp_path / "table.npz", inputs=np.tile(sample.inputs, (2, *[1] * (sample.inputs.ndim - 1))),
             labels=np.tile(labels, 2))  # fmt: skip
    users.model = lambda: sample.model
    done = simulated(tmp_path)
    assert not done.failed
    assert [row.method for row in done.table] == ["source", "fed-ade", "fed-ade-plus"]


def simulated(tmp_path: Path, **changes: object):
    scenario = settings(tmp_path, **changes).model_dump(mode="json")
    return fedade.simulate(
        ["source", {"fed-ade": {"joint_epochs": 1, "personal_epochs": 1}}, "fed-ade-plus"],
        {"scenario": scenario, "protocol": {"rounds": 1, "participation": 0.5}},
        out=tmp_path / "run",
    )


class Loops(Nearest):
    """Cannot be mapped over clients: it asks for a number."""

    def forward(self, rows):
        return super().forward(rows * (1 if float(rows.sum()) < 1e9 else 0))


@pytest.mark.parametrize("model", [Loops, lambda: nn.Linear(6, 3)], ids=["reads numbers", "no body"])
def test_odd_models_run_too(model, users, tmp_path, cache):
    users.model = model
    assert not simulated(tmp_path).failed


def test_a_head_can_be_named(users, tmp_path):
    users.model = lambda: nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)))
    deployment = testbed(settings(tmp_path, head="1"), tmp_path / "cache").deployment
    assert {"head.0.weight", "head.1.weight"} <= deployment.parameters.keys()


def grey_bytes(tmp_path: Path) -> Sample:
    """Images whose class is their shade, and a model that reads them from 0 to 1."""
    labels = np.arange(120) % 2
    images = np.where(labels, 200, 50)[:, None, None].repeat(4, 1).repeat(4, 2).astype(np.uint8)
    np.savez(tmp_path / "table.npz", inputs=images, labels=labels)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Linear(1, 2))
    with torch.no_grad():
        for value, layer in ((1 / 16, model[1]), (torch.tensor([[-1.0], [1.0]]), model[2])):
            layer.weight.copy_(torch.as_tensor(value).expand_as(layer.weight))
            layer.bias.zero_()
        model[1].bias.fill_(-0.5)
    return Sample(model, torch.from_numpy(images), 2)


def test_bytes_are_given_as_floats_from_0_to_1_unless_told(users, tmp_path, recwarn):
    sample = grey_bytes(tmp_path)
    users.model = lambda: sample.model
    assert testbed(settings(tmp_path), tmp_path / "cache").deployment.accuracy == 1
    with pytest.raises(FedadeError, match=r"fails on held-out inputs of shape .* type torch.uint8"):
        testbed(settings(tmp_path, pixels="bytes"), tmp_path / "cache")


@pytest.mark.filterwarnings("default:.*no more than by chance:RuntimeWarning")
def test_a_model_that_guesses_is_warned_of(users, tmp_path):
    sample = grey_bytes(tmp_path)
    sample.model[2].weight.data.neg_()
    users.model = lambda: sample.model
    with pytest.warns(RuntimeWarning, match=r"right on 0\.0 % of the held-out examples"):
        testbed(settings(tmp_path), tmp_path / "cache")


class Halves(nn.Module):
    """Bytes to numbers from 0 to 1, as a model does that was trained on bytes."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() / 255


def test_a_model_that_reads_bytes_is_told_from_one_that_does_not(users, tmp_path, recwarn):
    sample = grey_bytes(tmp_path)
    users.model = lambda: nn.Sequential(Halves(), *sample.model)
    with pytest.warns(RuntimeWarning, match=r"and on 100 % with scenario.pixels: bytes"):
        testbed(settings(tmp_path), tmp_path / "cache")
    recwarn.clear()
    assert testbed(settings(tmp_path, pixels="bytes"), tmp_path / "cache").deployment.accuracy == 1
    assert not recwarn.list


@pytest.fixture
def stored(users, tmp_path) -> Path:
    """The file of a deployment, which says what builds its network."""
    arrays = np.load(tmp_path / "table.npz")
    held_out = torch.from_numpy(arrays["inputs"][:90]).float(), torch.from_numpy(arrays["labels"][:90])
    path = tmp_path / "nearest.safetensors"
    fedade.deploy(Nearest(), held_out, factory="users_module:model", reference_size=60).save(path)
    return path


def test_a_deployments_file_is_a_model(stored, users, tmp_path, cache):
    deployment = testbed(settings(tmp_path, model=f"deployment:{stored}"), tmp_path / "cache").deployment
    assert deployment.digest == fedade.load_deployment(stored, Nearest()).digest
    assert not simulated(tmp_path, model=f"deployment:{stored}").failed


def test_a_file_belongs_to_its_weights_shapes_and_factory(stored, users, tmp_path):
    def tried(**changes: object) -> str:
        with pytest.raises(FedadeError) as told:
            testbed(settings(tmp_path, **{"model": f"deployment:{stored}", **changes}), tmp_path / "cache")
        return str(told.value)

    users.other = Shuffled
    assert "load it with that model" in tried(model=f"deployment:{stored}?factory=users_module:other")
    assert "unknown option 'colour=red'" in tried(model=f"deployment:{stored}?colour=red")
    assert "nowhere is missing" in tried(model="deployment:nowhere")
    assert "is never trained; set scenario.pretraining to none" in tried(pretraining={})
    fedade.deploy(Nearest(), (torch.rand(30, 6), torch.arange(30) % 3)).save(stored)
    assert "does not say what builds its network; name it: deployment:" in tried()
    np.savez(tmp_path / "table.npz", inputs=np.zeros((240, 5)), labels=np.arange(240) % 3)
    assert "inputs of shape [6], and the streamed ones have [5]" in tried(
        model=f"deployment:{stored}?factory=users_module:model"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "small-cnn"}, "small-cnn has no weights of its own"),
        ({"train_size": 30}, "scenario.train_size: nothing is trained"),
        ({"source": "gaussian"}, "scenario.source: gaussian shapes training data"),
        ({"reference_size": 500}, "500 examples are asked for and 60 are held out; set it to 60 or less"),
        ({"reference_size": 2}, "2 examples cannot hold one of each of 3 classes; set it to 3 or more$"),
        ({"reference_size": 2, "reference": "common"}, "^scenario.reference_size: 2 examples .*; set it to 3 or more$"),
        ({"model": "import:users_module:nothing"}, "cannot be imported"),
        ({"kind": "covariate"}, "scenario.kind: covariate corrupts images of bytes"),
        ({"head": "nose"}, "head='nose' is not in the model"),
    ],
)
def test_what_does_not_fit_is_one_line(changes, told, users, tmp_path):
    with pytest.raises(FedadeError, match=told):
        testbed(settings(tmp_path, **changes), tmp_path / "cache")


def test_classes_that_differ_are_named(users, tmp_path):
    users.model = lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    with pytest.raises(FedadeError, match="held-out labels contain 2; the model has classes 0 to 1"):
        testbed(settings(tmp_path), tmp_path / "cache")


@pytest.mark.parametrize("again", [False, True], ids=["measured", "from the cache"])
def test_hosts_of_flower_build_it_again(again, users, tmp_path):
    own = settings(tmp_path)
    for _ in range(1 + again):
        deployment = testbed(own, tmp_path / "cache").deployment
    digest = write_bundle(tmp_path / "bundle.safetensors", deployment, own)
    read = read_bundle(tmp_path / "bundle.safetensors", digest)
    assert read.digest == deployment.digest
    users.model = Shuffled
    with pytest.raises(FedadeError, match="belongs to a model with weights"):
        read_bundle(tmp_path / "bundle.safetensors", digest)
