"""Text networks by name: `hf:NAME_OR_PATH` (a hub name, a folder, a GGUF file) and `tiny-llama`."""

from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.tokens import Tokeniser
from fedade.models.text import tiny
from fedade.models.text.building import Adapters, text_network
from fedade.models.text.parts import DecoderLayers
from fedade.models.text.pretrained import load_model, load_tokeniser

_PREFIX = "hf:"


def is_text(name: str) -> bool:
    return name == tiny.NAME or name.startswith(_PREFIX)


def tokeniser(name: str) -> Tokeniser:
    _refuse_others(name)
    return tiny.HashedWords() if name == tiny.NAME else load_tokeniser(name.removeprefix(_PREFIX))


def build_text(name: str, num_classes: int, *, seed: int = 0, **adapters: Any) -> Network:
    """A text network with fresh adapters (`Adapters`) and classifier, which depend on the seed alone. Networks that are
    built alike share one frozen base."""
    _refuse_others(name)
    network = _template(name, num_classes, Adapters(**adapters), seed)
    return replace(network, body=deepcopy(network.body), head=deepcopy(network.head))


def entries_per_token(network: Network) -> int:
    """Entries of one token's hidden states in all layers, by which memory grows; 0 for other networks."""
    parts = [part for part in (network.body, network.head) if isinstance(part, DecoderLayers)]
    return sum(len(part.layers) * part.width for part in parts)


@lru_cache(maxsize=1)
def _template(name: str, num_classes: int, adapters: Adapters, seed: int) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)  # neither library's initialisers take a generator
        model = tiny.tiny_llama() if name == tiny.NAME else load_model(name.removeprefix(_PREFIX))
        return text_network(name, model, num_classes, adapters)


def _refuse_others(name: str) -> None:
    if not is_text(name):
        raise FedadeError(f"unknown text model {name!r}; known: {tiny.NAME}, {_PREFIX}NAME_OR_PATH")
