"""Text networks by name: `hf:NAME_OR_PATH` (a hub name, a folder, a GGUF file) and `tiny-llama`."""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import torch

from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.core.network import Network
from fedade.core.tokens import Tokeniser
from fedade.models.text.building import Adapters, text_network
from fedade.models.text.parts import DecoderLayers
from fedade.models.text.pretrained import load_model, load_tokeniser

transformers: Any = OptionalModule("transformers", "text")

_PREFIX = "hf:"
TINY = "tiny-llama"
VOCABULARY = 512
CONTEXT = 256
_WORD = re.compile(r"\w+|[^\w\s]")


def is_text(name: str) -> bool:
    return name == TINY or name.startswith(_PREFIX)


def tokeniser(name: str) -> Tokeniser:
    _refuse_others(name)
    return HashedWords() if name == TINY else load_tokeniser(name.removeprefix(_PREFIX))


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
        model = tiny_llama() if name == TINY else load_model(name.removeprefix(_PREFIX))
        return text_network(name, model, num_classes, adapters)


def _refuse_others(name: str) -> None:
    if not is_text(name):
        raise FedadeError(f"unknown text model {name!r}; known: {TINY}, {_PREFIX}NAME_OR_PATH")


def tiny_llama() -> Any:
    """A random Llama of four small layers; its weights are larger than usual, so that words differ from the start."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            initializer_range=0.2,
        )
    )


class HashedWords:
    """Words and signs, each hashed to one of a small vocabulary: a tokeniser that needs no files."""

    fingerprint = f"hashed-words-{VOCABULARY}"
    context = CONTEXT

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return [[_number(word) for word in _WORD.findall(text.lower())] for text in texts]


def _number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % VOCABULARY
