"""`tiny-llama`: a random Llama of four small layers, and a tokeniser that needs no files."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from fedade.core.importing import OptionalModule

transformers: Any = OptionalModule("transformers", "text")

NAME = "tiny-llama"
VOCABULARY = 512
CONTEXT = 256
_WORD = re.compile(r"\w+|[^\w\s]")


def tiny_llama() -> Any:
    """The model, with weights from PyTorch's generator; wider than usual, so that words differ from the start."""
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
    """Words and signs, each hashed to one of a small vocabulary."""

    fingerprint = f"hashed-words-{VOCABULARY}"
    context = CONTEXT

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return [[_number(word) for word in _WORD.findall(text.lower())] for text in texts]


def _number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % VOCABULARY
