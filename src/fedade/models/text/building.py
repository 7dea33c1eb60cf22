"""From a causal language model to a network: a frozen base, adapters, and a split into body and head."""

import json
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.core.network import Network
from fedade.core.tokens import PADDING
from fedade.models.text.parts import CAUSAL, Body, Head, causal_attention, freeze

transformers: Any = OptionalModule("transformers", "text")
peft: Any = OptionalModule("peft", "text")

_LIKE = "choose a model built like Llama, such as Llama, Mistral, Qwen or SmolLM"
_PROBE_TOKENS = 12
_PROBE_TOLERANCE = 1e-3
"""Largest difference from the model's own hidden state, relative to its largest entry: rounding has 1e-5."""


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters (LoRA; Hu et al., 2022) and where body and head meet."""

    rank: int = 8
    alpha: float = 16.0
    """Scale, divided by the rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Modules of a layer that are adapted."""
    shared_layers: int | None = None
    """Layers of the body; None: the lower half."""
    first_layer: int = 0
    """The lowest adapted layer."""


def text_network(name: str, model: Any, num_classes: int, adapters: Adapters) -> Network:
    """The network of a causal language model; new tensors come from PyTorch's generator. Refused where calling the
    layers one by one is not what the model itself does."""
    decoder, layers = _decoder(name, model)
    probe, expected = _probed(model, decoder)
    shared = _shared_layers(name, adapters, len(layers))
    for number, layer in enumerate(layers):
        freeze(layer, scales_persist=number >= adapters.first_layer)
    freeze(decoder.norm, scales_persist=True)
    freeze(model.get_input_embeddings(), scales_persist=False)
    described = f"{_fingerprint(model)}, {adapters}"
    _inject(name, model, adapters, len(layers))
    transformers.AttentionInterface.register(CAUSAL, causal_attention)
    model.set_attn_implementation(CAUSAL)
    classifier = nn.Linear(expected.shape[-1], num_classes, device=expected.device)
    below, lower, upper = (
        {number: layers[number] for number in range(*ends)}
        for ends in pairwise((0, adapters.first_layer, shared, len(layers)))
    )
    rotary = decoder.rotary_emb
    body = Body(model.get_input_embeddings(), below, lower, rotary, classifier.in_features, described)
    head = Head(upper, rotary, decoder.norm, classifier, described)
    _check_probe(name, body.eval(), head.eval(), probe, expected)
    return Network(name, body, head)


def _decoder(name: str, model: Any) -> tuple[Any, nn.ModuleList]:
    decoder = model.get_decoder()
    missing = [part for part in ("layers", "norm", "rotary_emb") if not hasattr(decoder, part)]
    if missing or not isinstance(decoder.layers, nn.ModuleList):
        lacking = ", ".join(missing) or "layers in a list"
        raise FedadeError(f"{name}: {type(decoder).__name__} has no {lacking}; {_LIKE}")
    return decoder, decoder.layers


def _shared_layers(name: str, adapters: Adapters, num_layers: int) -> int:
    shared = num_layers // 2 if adapters.shared_layers is None else adapters.shared_layers
    if not 0 < shared < num_layers:
        raise FedadeError(
            f"scenario.text.shared_layers: {shared} of the {num_layers} layers of {name} leave nothing to share or "
            f"to keep; give 1 to {num_layers - 1}"
        )
    if adapters.first_layer >= shared:
        raise FedadeError(
            f"scenario.text.first_layer: {adapters.first_layer} leaves no adapter to share below layer {shared}; "
            f"give 0 to {shared - 1}"
        )
    return shared


def _inject(name: str, model: Any, adapters: Adapters, num_layers: int) -> None:
    for target in adapters.targets:
        if not any(child.rpartition(".")[2] == target for child, _ in model.named_modules()):
            linear = sorted({
                child.rpartition(".")[2] for child, module in model.get_decoder().named_modules()
                if isinstance(module, nn.Linear)
            })  # fmt: skip
            raise FedadeError(f"scenario.text.targets: {name} has no module {target!r}; it has {', '.join(linear)}")
    config = peft.LoraConfig(
        r=adapters.rank,
        lora_alpha=adapters.alpha,
        target_modules=list(adapters.targets),
        layers_to_transform=list(range(adapters.first_layer, num_layers)),
    )
    try:
        peft.inject_adapter_in_model(config, model)
    except ValueError as error:
        raise FedadeError(
            f"scenario.text.targets: {', '.join(adapters.targets)} of {name} cannot be adapted ({error}); "
            "name linear layers"
        ) from error
    for module in model.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = False  # a pass rounds the adapters, not the hidden states


def _fingerprint(model: Any) -> str:
    """Tells one base from another: its configuration, and a few entries of every tensor."""
    config = model.config.to_dict()
    for passing in ("_name_or_path", "transformers_version", "dtype"):
        config.pop(passing, None)
    digest = blake2b(json.dumps(config, sort_keys=True, default=str).encode(), digest_size=12)
    for _, value in sorted(model.get_decoder().named_buffers()):
        digest.update(value.flatten()[:: max(1, value.numel() // 64)].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _probed(model: Any, decoder: Any) -> tuple[Tensor, Tensor]:
    """Two short texts, one of them padded, and the model's own hidden states of their last tokens."""
    device = model.get_input_embeddings().weight.device
    tokens = (torch.arange(2 * _PROBE_TOKENS, device=device) * 7919 + 11) % model.config.vocab_size
    probe = tokens.view(2, _PROBE_TOKENS).to(torch.int32)
    probe[1, _PROBE_TOKENS // 2 :] = PADDING
    with torch.no_grad():
        own = [decoder(input_ids=row[row != PADDING].long()[None], use_cache=False)[0][0, -1] for row in probe]
    return probe, torch.stack(own)


def _check_probe(name: str, body: Body, head: Head, probe: Tensor, expected: Tensor) -> None:
    with torch.no_grad():
        hidden = head.last_hidden(body(probe))
    difference = float((hidden - expected).abs().max() / expected.abs().max())
    if not difference < _PROBE_TOLERANCE:
        raise FedadeError(
            f"{name}: its layers, called one by one, differ from the model itself by {difference:.1%} "
            f"(it scales embeddings or places tokens in its own way); {_LIKE}"
        )
