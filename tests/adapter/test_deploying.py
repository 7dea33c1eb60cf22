"""Any trained classifier becomes a deployment, or is refused with a line that says why."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_wine
from speed.networks import CifarResNet
from torch import Tensor, nn

import fedade
from fedade.core.errors import FedadeError
from fedade.models.batch_norm import BatchNorm

from .networks import MODELS, cnn, kept, labels_for, made, mlp

PUBLIC = Path(os.environ.get("FEDADE_DATA", "data")) / "models"
"""Where published weights may lie; tests of them are skipped where they do not."""


def deployed(name: str, **options):
    sample = made(name)
    return sample, fedade.deploy(sample.model, (sample.inputs, labels_for(sample)), **options)


@pytest.mark.parametrize("name", MODELS)
def test_five_lines_run_on(name, tmp_path):
    sample, deployment = deployed(name)
    before = kept(sample.model)
    adapter = fedade.Adapter(deployment)
    probabilities = adapter(sample.inputs[:50])
    assert probabilities.shape == (50, sample.classes)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(50))
    assert adapter.status.samples == 50
    adapter.save(tmp_path / "adapter.safetensors")
    deployment.save(tmp_path / "deployment.safetensors")
    again = fedade.Adapter.load(
        tmp_path / "adapter.safetensors", fedade.load_deployment(tmp_path / "deployment.safetensors", sample.model)
    )
    assert torch.equal(again(sample.inputs[40:90]), adapter(sample.inputs[40:90]))
    assert all(torch.equal(value, before[key]) for key, value in sample.model.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_body_and_head_give_the_models_own_logits(name):
    sample, deployment = deployed(name)
    with torch.no_grad():
        answer = sample.model.eval()(sample.inputs[:20])
    logits = answer if isinstance(answer, Tensor) else answer.logits
    made_again = deployment.network.logits(deployment.parameters, sample.inputs[:20])
    torch.testing.assert_close(made_again, logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("blocks", [3, 9])
def test_published_weights_are_split_and_measured(blocks):
    path = PUBLIC / f"cifar10-resnet{6 * blocks + 2}.safetensors"
    if not path.is_file():
        pytest.skip("published weights are not on this machine")
    from safetensors.torch import load_file

    model = CifarResNet(blocks)
    model.load_state_dict(load_file(path))
    deployment = fedade.deploy(model, (torch.rand(60, 3, 32, 32), torch.arange(60) % 10))
    assert deployment.origin["head"] == "linear"
    assert fedade.Adapter(deployment)(torch.rand(40, 3, 32, 32)).isfinite().all()


@pytest.mark.parametrize("norm", [True, False])
def test_a_table_is_learned_and_adapted_to(norm):
    data = load_wine()
    inputs = torch.from_numpy(data.data).float()
    inputs, labels = (inputs - inputs.mean(0)) / inputs.std(0), torch.from_numpy(data.target)
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = mlp(13, 3, norm)
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(60):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[::2]), labels[::2]).backward()
            optimiser.step()
    deployment = fedade.deploy(model, (inputs[1::2], labels[1::2]))
    assert deployment.accuracy > 0.9
    adapter = fedade.Adapter(deployment)
    right = [(adapter(inputs[1::2] + 0.5).argmax(-1) == labels[1::2]).float().mean() for _ in range(3)]
    assert right[-1] > 0.85


def test_what_is_measured_is_that_of_the_held_out_data():
    sample = made("small cnn")
    labels = torch.cat([torch.zeros(60), torch.ones(30), torch.full((20,), 2), torch.full((10,), 3)]).long()
    deployment = fedade.deploy(sample.model, (sample.inputs, labels), reference_size=40)
    torch.testing.assert_close(deployment.source_prior, torch.tensor([60, 30, 20, 10]) / 120)
    assert torch.bincount(deployment.reference.labels).tolist() == [10, 10, 10, 10]
    torch.testing.assert_close(deployment.confusion.sum(0), torch.ones(4))
    given = fedade.deploy(sample.model, (sample.inputs, labels), source_prior=[1, 1, 1, 1])
    torch.testing.assert_close(given.source_prior, torch.full((4,), 0.25))


def test_layers_that_share_their_weights_are_deployed():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    deployment = fedade.deploy(model, GOOD)
    torch.testing.assert_close(deployment.network.logits(deployment.parameters, GOOD[0]), model(GOOD[0]))
    assert fedade.Adapter(deployment)(GOOD[0]).isfinite().all()


@pytest.mark.filterwarnings("ignore:.*stay as deployed")
def test_batch_norm_in_all_its_forms_keeps_the_models_answers():
    class FrozenBatchNorm2d(nn.Module):
        """As torchvision's: all tensors are buffers."""

        def __init__(self, width: int) -> None:
            super().__init__()
            for name in ("weight", "bias", "running_mean", "running_var"):
                self.register_buffer(name, torch.rand(width) + 0.5)
            self.eps = 0.0

        def forward(self, inputs: Tensor) -> Tensor:
            shape = (1, -1, 1, 1)
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            return inputs * scale.view(shape) + (self.bias - self.running_mean * scale).view(shape)

    class BatchNormAct2d(nn.BatchNorm2d):
        """As timm's: dropout and activation are part of the layer."""

        def __init__(self, width: int) -> None:
            super().__init__(width)
            self.drop, self.act = nn.Identity(), nn.ReLU()

        def forward(self, inputs: Tensor) -> Tensor:
            return self.act(self.drop(super().forward(inputs)))

    forms = {
        "frozen": (FrozenBatchNorm2d, 2),
        "acting": (BatchNormAct2d, 2),
        "without statistics": (lambda width: nn.BatchNorm2d(width, track_running_stats=False), 0),
        "without scales": (lambda width: nn.BatchNorm2d(width, affine=False), 2),
        "cumulative": (lambda width: nn.BatchNorm2d(width, momentum=None), 2),
        "synchronised": (nn.SyncBatchNorm, 2),
        "instance": (lambda width: nn.InstanceNorm2d(width, track_running_stats=True), 0),
    }
    inputs = torch.rand(40, 3, 8, 8)
    for name, (norm, converted) in forms.items():
        model = cnn(3, 4, norm).eval()
        deployment = fedade.deploy(model, (inputs, torch.arange(40) % 4))
        ours = [module for module in deployment.network.body.modules() if isinstance(module, BatchNorm)]
        assert len(ours) == converted, name
        with torch.no_grad():
            logits = deployment.network.logits(deployment.parameters, inputs)
            torch.testing.assert_close(logits, model(inputs), atol=1e-4, rtol=1e-3)
        assert fedade.Adapter(deployment)(inputs).isfinite().all(), name


def test_half_precision_becomes_float32_and_leaves_the_model_as_it_is():
    model = cnn(3, 4).half()
    deployment = fedade.deploy(model, (torch.rand(40, 3, 8, 8).half(), torch.arange(40) % 4))
    assert {value.dtype for value in deployment.parameters.values()} == {torch.float32}
    assert next(model.parameters()).dtype is torch.float16
    assert fedade.Adapter(deployment)(torch.rand(32, 3, 8, 8).half()).dtype is torch.float32


def test_a_convolution_becomes_a_head_as_the_message_says():
    body, pooled = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU()), nn.AdaptiveAvgPool2d(1)
    model, head = nn.Sequential(body, nn.Conv2d(6, 3, 1), pooled, nn.Flatten()), nn.Linear(6, 3)
    head.weight.data, head.bias.data = model[1].weight.data.flatten(1), model[1].bias.data
    images = torch.rand(30, 3, 8, 8)
    deployment = fedade.deploy(nn.Sequential(body, pooled, nn.Flatten(), head), (images, GOOD[1]))
    torch.testing.assert_close(deployment.network.logits(deployment.parameters, images), model(images))


def test_a_head_can_be_named():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)))
    data = torch.rand(30, 4), torch.arange(30) % 3
    assert set(fedade.deploy(model, data, head="2").personal) == {
        "head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias"
    }  # fmt: skip
    assert fedade.deploy(model, data).origin["head"] == "2.2"


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs + torch.rand_like(inputs))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls it deprecated, in a class that changes by version
        return torch.jit.trace(nn.Linear(4, 3), torch.rand(2, 4))


class Columns(nn.Module):
    """The first three, as of a layer of no known kind."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :3]


POOLED = nn.Sequential(nn.Conv1d(1, 3, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten())
SERIES = torch.rand(30, 1, 4)
PIXELS = torch.ones(30, 3, 8, 8, dtype=torch.uint8)
GOOD = (torch.rand(30, 4), torch.arange(30) % 3)
LINEAR = nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (nn.Sequential(LINEAR, nn.Softmax(-1)), GOOD, {}, r"softmax after it\?\); pass head="),
        (nn.Sequential(nn.Linear(4, 1)), GOOD, {}, r"gives \[8, 1\] for 8 inputs, one logit each; give"),
        (nn.Sequential(nn.Conv1d(1, 4, 4), nn.Flatten(), Columns()), (SERIES, GOOD[1]), {}, "no linear layer"),
        (POOLED, (SERIES, GOOD[1]), {}, r"head was found, since 0 is a Conv1d, .* its weight\.flatten\(1\)$"),
        (POOLED, (SERIES, GOOD[1]), {"head": "0"}, "^0 is a Conv1d, and features before the head must be"),
        (Random(), GOOD, {}, "differently each time"),
        (LINEAR, (torch.rand(30, 5), GOOD[1]), {}, r"fails on held-out inputs of shape \[8, 5\]"),
        (LINEAR, GOOD, {"head": "classifier"}, "head='classifier' is not in the model"),
        ("model.pt", GOOD, {}, "the model is a str; pass the trained nn.Module"),
        (LINEAR, GOOD[0], {}, r"held_out is a Tensor; pass \(inputs, labels\)"),
        (LINEAR, (GOOD[0], GOOD[1][:-1]), {}, "do not belong together"),
        (LINEAR, (GOOD[0][:0], GOOD[1][:0]), {}, "no held-out samples; bring"),
        (LINEAR, (GOOD[0], GOOD[1] + 1), {}, "contain 3; the model has classes 0 to 2"),
        (LINEAR, (GOOD[0], GOOD[1] / 2), {}, "not whole numbers"),
        (LINEAR, (GOOD[0], GOOD[1] * 0), {}, "no held-out sample of classes 1, 2"),
        (LINEAR, (GOOD[0] / 0, GOOD[1]), {}, "input 0 holds NaN or infinite"),
        (LINEAR, GOOD, {"source_prior": [0.5, 0.5]}, "not 3 positive numbers"),
        (LINEAR, GOOD, {"reference_size": 0}, "reference_size is 0"),
        (
            LINEAR,
            GOOD,
            {"reference_size": 2.5},
            "reference_size is 2.5, of 30 held-out samples of 3 classes; pass a whole",
        ),
        (LINEAR, GOOD, {"reference_size": 2}, "pass a whole number from 3 to 30, or leave it out"),
        (LINEAR, GOOD, {"reference_size": 31}, "reference_size is 31, of 30 held-out"),
        (nn.Sequential(nn.LazyLinear(3)), GOOD, {}, r"never run \(Lazy\.\.\.\); call it once"),
        (nn.Linear(4, 3, device="meta"), GOOD, {}, "on the meta device: load its weights"),
        (scripted(), GOOD, {}, "TorchScript, which cannot be split"),
        (cnn(1, 3), (torch.rand(30, 8, 8), GOOD[1]), {}, r"need an axis for their one channel: inputs\[:, None\]"),
        (nn.Conv1d(6, 3, 8), (torch.rand(30, 1, 6, 8), GOOD[1]), {}, r"take inputs\[:, 0\] inside the module"),
        (cnn(3, 3), (PIXELS, GOOD[1]), {}, r"such as inputs\.float\(\) / 255"),
        (nn.Bilinear(4, 4, 3), GOOD, {}, "'input2'; it is given one tensor"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(model, data, options, message):
    with pytest.raises(FedadeError, match=message) as error:
        fedade.deploy(model, data, **options)
    assert "\n" not in str(error.value)


class Hooked(nn.Module):
    """Its last features are read from what a hook on one of its layers has kept."""

    def __init__(self, layer: str, by_name: bool = False) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.next, self.top = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 3)
        self.kept = torch.rand(8, 8, 8, 8)  # of an earlier call
        hook = (lambda *seen: self.keep(*seen)) if by_name else self.keep
        self.get_submodule(layer).register_forward_hook(hook)

    def keep(self, _module: nn.Module, _inputs: Tensor, output: Tensor) -> None:
        self.kept = output.detach()

    def forward(self, images: Tensor) -> Tensor:
        last = self.next(self.norm(self.conv(images)).relu())
        return self.top((last + self.kept).mean((2, 3)))


def test_what_hooks_keep_is_of_the_same_inputs():
    images, others = torch.rand(2, 30, 3, 8, 8)
    model = Hooked("conv").eval()
    deployment = fedade.deploy(model, (images, GOOD[1]))
    with torch.no_grad():
        torch.testing.assert_close(deployment.network.logits(deployment.parameters, others), model(others))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Hooked("norm"), "norm is a BatchNorm2d with a forward hook, and is replaced .*; remove the hook"),
        (Hooked("conv", by_name=True), "in another order; .*make the hook a method"),
    ],
)
@pytest.mark.parametrize("samples", [8, 30])
def test_hooks_that_would_not_run_are_refused(model, message, samples):
    with pytest.raises(FedadeError, match=message):
        fedade.deploy(model, (torch.rand(samples, 3, 8, 8), GOOD[1][:samples]))


def test_a_part_that_cannot_be_left_out_prints_nothing(capfd):
    with pytest.raises(FedadeError, match="without 3 the rest of the model fails"):
        fedade.deploy(cnn(3, 3), (torch.rand(30, 3, 8, 8), GOOD[1]), head="3")
    assert capfd.readouterr().err == ""


COMPILED = pytest.param(
    torch.compile, marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
)


@pytest.mark.parametrize("wrapped", [nn.DataParallel, COMPILED, lambda model: model.bfloat16()])
def test_wrapped_and_half_models_work(wrapped):
    model = cnn(3, 3)
    deployment = fedade.deploy(wrapped(model), (torch.rand(30, 3, 8, 8), GOOD[1]))
    assert fedade.Adapter(deployment)(torch.rand(40, 3, 8, 8)).isfinite().all()
    assert model.training


@pytest.mark.parametrize("wrapped", [nn.DataParallel, COMPILED])
def test_parts_may_be_wrapped(wrapped):
    plain, data = cnn(3, 3), (torch.rand(30, 3, 8, 8), GOOD[1])
    model = nn.Sequential(wrapped(plain[:-1]), plain[-1])
    deployment, usual = fedade.deploy(model, data), fedade.deploy(nn.Sequential(plain[:-1], plain[-1]), data)
    assert deployment.digest == usual.digest, "a file of one is a file of the other"
    batch = torch.rand(40, 3, 8, 8)
    assert torch.equal(fedade.Adapter(deployment)(batch), fedade.Adapter(usual)(batch))
    assert type(model[0]) is not nn.Sequential, "the module is as it was"


class OwnNorm(nn.BatchNorm2d):
    """A class of its own, which may do anything."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)


def test_statistics_that_cannot_be_adapted_are_told():
    data = torch.rand(30, 3, 8, 8), GOOD[1]
    with pytest.warns(RuntimeWarning, match=r"^1, 4: statistics of 2 normalisation layers stay as deployed"):
        fedade.deploy(cnn(3, 3, OwnNorm), data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for norm in (nn.BatchNorm2d, nn.InstanceNorm2d, lambda width: nn.BatchNorm2d(width, track_running_stats=False)):
            fedade.deploy(cnn(3, 3, norm), data)


def test_one_logit_becomes_two_as_the_message_says():
    model, data = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), (GOOD[0], GOOD[1] % 2)
    with pytest.raises(FedadeError, match="two outputs, the first with weights and bias 0"):
        fedade.deploy(model, data)
    two = nn.Linear(6, 2)
    for own, one in zip(two.parameters(), model[2].parameters(), strict=True):
        own.data = torch.cat([torch.zeros_like(one), one])
    deployment = fedade.deploy(nn.Sequential(model[0], model[1], two), data)
    with torch.no_grad():
        expected = model(GOOD[0]).sigmoid()
    torch.testing.assert_close(fedade.Adapter(deployment, "source").predict(GOOD[0])[:, 1:], expected)


def test_few_samples_are_told():
    with pytest.warns(RuntimeWarning, match="only 1 held-out sample of classes 0, 1, 2"):
        fedade.deploy(LINEAR, (GOOD[0][:3], GOOD[1][:3]))


def test_another_model_than_the_stored_is_refused_with_both_named(tmp_path):
    deployment = fedade.deploy(LINEAR, GOOD)
    deployment.save(tmp_path / "deployment.safetensors")
    other = nn.Linear(4, 3)
    with pytest.raises(FedadeError, match=f"weights {deployment.origin['weights']}, not "):
        fedade.load_deployment(tmp_path / "deployment.safetensors", other)
    with pytest.raises(FedadeError, match="names and shapes"):
        fedade.load_deployment(tmp_path / "deployment.safetensors", mlp(4, 3, False))
    fedade.deploy(mlp(4, 3, False), GOOD).save(tmp_path / "mlp")
    with pytest.raises(FedadeError, match=r"to a Sequential with the head '3'; .* this Linear is not \(head="):
        fedade.load_deployment(tmp_path / "mlp", other)
    with pytest.raises(FedadeError, match=r"to a Linear; load it with .* this Conv2d is not \(the model fails"):
        fedade.load_deployment(tmp_path / "deployment.safetensors", nn.Conv2d(3, 3, 3))
    with pytest.raises(FedadeError, match="is missing"):
        fedade.load_deployment(tmp_path / "nothing", LINEAR)
    (tmp_path / "damaged").write_bytes(b"nonsense")
    with pytest.raises(FedadeError, match=r"is damaged .*; write it again with deployment\.save"):
        fedade.load_deployment(tmp_path / "damaged", LINEAR)


def test_the_callers_random_numbers_stay_where_they_are():
    sample = made("small cnn")
    before = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedade.Adapter(fedade.deploy(sample.model, (sample.inputs, labels_for(sample))))(sample.inputs[:40])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert sample.model.training
