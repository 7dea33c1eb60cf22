"""Clients with adapters on one frozen base: vectorised, loop and the libraries' own modules agree."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import grad
from torch.utils.flop_counter import FlopCounterMode

from fedade.client_map import Vectorised, loop, side_by_side
from fedade.core.deployment import Reference
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.threads import SMALL_NETWORK
from fedade.core.tokens import PADDING
from fedade.experiments.settings import ExecutionSettings, Experiment
from fedade.models.text import VOCABULARY, build_text, tiny_llama
from fedade.runner.clocks import check_precision, client_maps

CLIENTS, TEXTS, LENGTH, CLASSES, SEED = 5, 4, 12, 7, 3
TARGETS = ("q_proj", "k_proj", "v_proj")
TOLERANCES = {torch.float64: {"atol": 1e-9, "rtol": 1e-9}, torch.float32: {"atol": 1e-5, "rtol": 1e-4}}


def network_in(dtype: torch.dtype) -> Network:
    network = build_text("tiny-llama", CLASSES, seed=SEED)
    return replace(network, body=deepcopy(network.body).to(dtype), head=deepcopy(network.head).to(dtype))


def texts() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (CLIENTS, TEXTS, LENGTH), generator=generator, dtype=torch.int32)
    lengths = torch.randint(1, LENGTH + 1, (CLIENTS, TEXTS, 1), generator=generator)
    return torch.where(torch.arange(LENGTH) < lengths, tokens, PADDING)


def unequal_clients(network: Network) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Every client's own adapters and classifier, none of them zero, and what none of them moves."""
    generator = torch.Generator().manual_seed(1)
    parameters, moving = network.initial_parameters(), network.trainable()
    own = {
        name: 0.2 * torch.randn((CLIENTS, *parameters[name].shape), generator=generator, dtype=parameters[name].dtype)
        for name in sorted(moving)
    }
    return own, {name: value for name, value in parameters.items() if name not in moving}


def gradients(network: Network, fixed: dict[str, Tensor]):
    def loss(own: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(network.logits({**fixed, **own}, inputs), labels)

    return grad(loss)


LABELS = torch.arange(CLIENTS * TEXTS).view(CLIENTS, TEXTS) % CLASSES


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def setting(request):
    network = network_in(request.param)
    own, fixed = unequal_clients(network)
    return network, own, fixed, TOLERANCES[request.param]


@pytest.mark.parametrize("fast", [Vectorised(), Vectorised(2), side_by_side], ids=["all", "chunks", "side-by-side"])
def test_every_map_gives_every_client_the_gradients_of_the_loop(setting, fast):
    network, own, fixed, tolerance = setting
    function = gradients(network, fixed)
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if fast is side_by_side else 1)  # on two cores, clients have copies of the modules
    try:
        found, expected = (each(function, own, texts(), LABELS) for each in (fast, loop))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == len(network.trainable()) > 20
    for name, value in found.items():
        assert expected[name].abs().max() > 0, name
        torch.testing.assert_close(value, expected[name], **tolerance)


def test_gradients_are_those_of_the_libraries_own_model(setting):
    """The obvious way: a peft model per client, a mask for the padding, `backward`."""
    import peft  # takes seconds, which whoever only collects tests need not wait for

    network, own, fixed, tolerance = setting
    found = Vectorised()(gradients(network, fixed), own, texts(), LABELS)
    dtype = next(iter(own.values())).dtype
    for client in range(CLIENTS):
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(SEED)
            model = peft.get_peft_model(
                tiny_llama(), peft.LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS))
            ).to(dtype)
        adapters = {
            name.partition("base_model.model.model.")[2]: value
            for name, value in model.named_parameters()
            if "lora_" in name
        }
        # Ours are body.layers.0... and head.layers.2..., numbered as in the model.
        ours = {name.partition(".")[2]: name for name in own if "lora_" in name}
        assert ours.keys() == adapters.keys()
        with torch.no_grad():
            for name, value in adapters.items():
                value.copy_(own[ours[name]][client])
        weight, bias = (own[f"head.classifier.{part}"][client].clone().requires_grad_() for part in ("weight", "bias"))
        tokens = texts()[client].long()
        present = (tokens != PADDING).long()
        hidden = model.get_base_model().model(input_ids=tokens.clamp(min=0), attention_mask=present).last_hidden_state
        last = hidden[torch.arange(TEXTS), present.sum(-1) - 1]
        F.cross_entropy(F.linear(last, weight, bias), LABELS[client]).backward()
        for name, value in adapters.items():
            torch.testing.assert_close(found[ours[name]][client], value.grad, **tolerance)
        torch.testing.assert_close(found["head.classifier.weight"][client], weight.grad, **tolerance)
        torch.testing.assert_close(found["head.classifier.bias"][client], bias.grad, **tolerance)


def test_five_clients_multiply_as_much_as_one_with_five_times_the_texts():
    network = network_in(torch.float32)
    own, fixed = unequal_clients(network)
    function = gradients(network, fixed)
    with FlopCounterMode(display=False) as of_all:
        Vectorised()(function, own, texts(), LABELS)
    one = {name: value[0] for name, value in own.items()}
    with FlopCounterMode(display=False) as of_one:
        function(one, texts().flatten(0, 1), LABELS.flatten())
    assert of_all.get_total_flops() == of_one.get_total_flops() > 0


@pytest.mark.parametrize(
    ("device", "samples", "at_once"),
    [("cpu", 16, 70_000_000 // (16 * LENGTH * 128)), ("cuda", 16, 600_000_000 // (16 * LENGTH * 128)),
     ("cpu", 10**6, 1)],
)  # fmt: skip
def test_text_clients_are_vectorised_in_chunks_that_their_hidden_states_bound(device, samples, at_once):
    network = network_in(torch.float32)
    # Above the size from which images' clients run side by side.
    parameters = network.initial_parameters() | {"head.more": torch.zeros(SMALL_NETWORK + 1)}
    deployment = SimpleNamespace(
        origin={},
        network=network, parameters=parameters, reference=Reference(texts()[0], LABELS[0])
    )  # fmt: skip
    maps = client_maps(ExecutionSettings(device=device), SimpleNamespace(deployment=deployment), samples)
    assert maps.forward == maps.update == Vectorised(at_once)


@pytest.mark.parametrize(("model", "device", "told"), [
    ("tiny-llama", "cuda", None),
    ("tiny-llama", "cpu", "bf16 needs a GPU"),
    ("timm:resnet18", "cuda", None),
])  # fmt: skip
def test_all_models_may_compute_in_bf16_on_a_gpu(model, device, told):
    experiment = Experiment(scenario={"model": model}, execution={"precision": "bf16", "device": device})
    if told is None:
        check_precision(experiment)
    else:
        with pytest.raises(FedadeError, match=told):
            check_precision(experiment)
