"""GGUF files: unpacked once, into the cache, model and tokeniser."""

from pathlib import Path

import gguf
import numpy as np
import torch

from fedade.models.text import build_text, tokeniser

LAYERS, WIDTH, INNER, HEADS, KEYS = 2, 16, 32, 4, 2
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", "Ġ"]
MERGES = ["r o", "ro m", "rom e"]
TOKENS = ["<s>", "</s>", *LETTERS, "ro", "rom", "rome"]


def packed_llama(path: Path) -> dict[str, np.ndarray]:
    """Write a tiny random Llama with a byte-pair tokeniser; returns its tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 2))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    generator = np.random.default_rng(0)
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    for layer in range(LAYERS):
        keys = WIDTH * KEYS // HEADS
        shapes |= {
            f"blk.{layer}.attn_norm": (WIDTH,), f"blk.{layer}.ffn_norm": (WIDTH,),
            f"blk.{layer}.attn_q": (WIDTH, WIDTH), f"blk.{layer}.attn_k": (keys, WIDTH),
            f"blk.{layer}.attn_v": (keys, WIDTH), f"blk.{layer}.attn_output": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_gate": (INNER, WIDTH), f"blk.{layer}.ffn_up": (INNER, WIDTH),
            f"blk.{layer}.ffn_down": (WIDTH, INNER),
        }  # fmt: skip
    tensors = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in tensors.items():
        writer.add_tensor(f"{name}.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_packed_model_is_unpacked_once_with_its_tokeniser(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path / "cache"))
    tensors = packed_llama(tmp_path / "tiny.gguf")
    name = f"hf:{tmp_path / 'tiny.gguf'}"
    network = build_text(name, 3)
    torch.testing.assert_close(network.body.embedding.weight, torch.from_numpy(tensors["token_embd"]))
    value = network.head.layers["1"].self_attn.v_proj.base_layer.weight
    torch.testing.assert_close(value, torch.from_numpy(tensors["blk.1.attn_v"]))
    (folder,) = (tmp_path / "cache" / "weights").iterdir()
    assert folder.name.startswith("tiny-")
    made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    read = tokeniser(f"hf:{tmp_path}")  # a folder with one such file is that file
    assert read(["rome"])[0][-1:] == [TOKENS.index("rome")]
    assert read.context == 64
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made
