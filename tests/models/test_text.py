"""Text networks: a frozen base that nobody copies, adapters that everybody may move, and clear refusals."""

from copy import deepcopy
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from torch import Tensor
from torch.func import grad

from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.split import Split
from fedade.core.tokens import PADDING
from fedade.models.text import VOCABULARY, build_text, entries_per_token, is_text, tiny_llama, tokeniser

WORDS = ("paris", "rome", "is", "the", "capital", "of", "france", "italy", ".")


def tokens(*lengths: int, length: int = 10) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, VOCABULARY, (len(lengths), length), generator=generator, dtype=torch.int32)
    return torch.where(torch.arange(length) < torch.tensor(lengths)[:, None], drawn, PADDING)


@pytest.fixture
def network() -> Network:
    return build_text("tiny-llama", 5)


def moved(network: Network) -> dict[str, Tensor]:
    """Parameters whose adapters are not zero."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in network.initial_parameters().items()
    }


def folder_with(model: "transformers.PreTrainedModel", folder: Path) -> str:
    """A folder as `transformers` publishes them."""
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token=".")  # noqa: S106
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token=".").save_pretrained(folder)  # noqa: S106
    model.save_pretrained(folder)
    return f"hf:{folder}"


def test_parameters_are_adapters_classifier_and_scales_and_the_split_is_the_papers(network):
    parameters, trainable = network.initial_parameters(), network.trainable()
    kinds = {name: "lora" in name or "classifier" in name for name in parameters}
    assert {name for name, moves in kinds.items() if moves} == trainable
    scales = {name for name, moves in kinds.items() if not moves}
    assert all("norm.weight" in name or "layernorm.weight" in name for name in scales)
    assert len(scales) == 2 * 4 + 1
    split = Split(("head.",))
    split.check(parameters)
    layers = lambda names: {int(name.split(".")[2]) for name in names if "lora" in name}  # noqa: E731
    assert layers(split.shared(parameters)) == {0, 1}
    assert layers(split.personal_part(parameters)) == {2, 3}


def test_text_models_are_known_by_their_names():
    assert is_text("tiny-llama")
    assert is_text("hf:someone/model")
    assert not is_text("small-cnn")
    with pytest.raises(FedadeError, match=r"unknown text model 'small-cnn'; known: tiny-llama, hf:"):
        build_text("small-cnn", 5)


def test_features_are_zero_where_a_text_is_padded_and_only_there(network):
    features = network.represent(network.initial_parameters(), tokens(10, 4, 1))
    present = (features != 0).any(-1)
    assert present.sum(-1).tolist() == [10, 4, 1]
    torch.testing.assert_close(network.summarise(features)[1], features[1, :4].mean(0))
    assert torch.equal(network.summarise(features[:, 0]), features[:, 0])


def test_padding_changes_nothing(network):
    parameters, text = moved(network), tokens(6, length=6)
    longer = torch.cat([text, torch.full((1, 5), PADDING, dtype=torch.int32)], 1)
    torch.testing.assert_close(network.logits(parameters, text), network.logits(parameters, longer))
    last_changed = text.clone()
    last_changed[0, -1] = (text[0, -1] + 1) % VOCABULARY
    assert not torch.allclose(network.logits(parameters, text), network.logits(parameters, last_changed))


def test_copies_share_the_base_and_nothing_else(network):
    copied = deepcopy(network.body)
    base = dict(network.body.named_buffers())
    persistent = network.body.state_dict()
    for name, value in copied.named_buffers():
        if "rotary" not in name:
            assert (value.data_ptr() == base[name].data_ptr()) == (name not in persistent), name
    for name, value in copied.named_parameters():
        assert value.data_ptr() != dict(network.body.named_parameters())[name].data_ptr()
    again = build_text("tiny-llama", 5)
    assert again.body.embedding.weight.data_ptr() == network.body.embedding.weight.data_ptr()
    assert network.to("cpu").body.embedding.weight.data_ptr() == network.body.embedding.weight.data_ptr()


def test_a_base_in_another_precision_leaves_the_first_as_it_is(network):
    rounded = network.computing_in("bf16")
    assert rounded.body.embedding.weight.dtype is torch.bfloat16
    assert rounded.body.rotary.inv_freq.dtype is torch.float32
    assert network.body.embedding.weight.dtype is torch.float32
    assert deepcopy(rounded.body).embedding.weight.data_ptr() == rounded.body.embedding.weight.data_ptr()
    assert network.computing_in("float32").body.dtype is torch.float32


def test_bf16_rounds_body_and_head_but_gives_float32(network):
    parameters, inputs = moved(network), tokens(10, 4)
    rounded = network.computing_in("bf16")
    features = rounded.represent(parameters, inputs)
    logits = rounded.classify(parameters, features)
    exact = network.logits(parameters, inputs)
    assert features.dtype is logits.dtype is torch.float32
    assert torch.equal(features, features.to(torch.bfloat16).float())
    assert 0 < (logits - exact).abs().max() < 0.05 * exact.abs().max()
    gradient = grad(lambda moving: rounded.logits({**parameters, **moving}, inputs).square().mean())(parameters)
    assert {value.dtype for value in gradient.values()} == {torch.float32}


def test_new_tensors_depend_on_the_seed_alone():
    one, same, other = (build_text("tiny-llama", 5, seed=seed).initial_parameters() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one if "lora_A" in name)


def test_what_lies_below_the_adapters_is_computed_once():
    whole = build_text("tiny-llama", 5, first_layer=1)
    parameters, inputs = moved(whole), tokens(10, 4, 1)
    assert not any(name.startswith(("body.layers.0.", "body.below.")) for name in parameters)
    encoded = whole.encode(inputs)
    assert encoded.shape == (3, 10, 32)
    assert (encoded != 0).any(-1).sum(-1).tolist() == [10, 4, 1]
    torch.testing.assert_close(whole.logits(parameters, encoded), whole.logits(parameters, inputs))
    assert build_text("tiny-llama", 5).encode(inputs) is inputs


def test_hidden_states_of_all_layers_are_counted(network):
    assert entries_per_token(network) == 4 * 32


def test_words_are_hashed_to_the_same_numbers_everywhere():
    read = tokeniser("tiny-llama")
    first, second = read(["Rome is the capital of Italy.", "rome"])
    assert first == [87, 210, 46, 168, 147, 193, 132]
    assert second == first[:1]
    assert read.context == 256


def test_a_folder_is_a_model_with_its_tokeniser(tmp_path):
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(4)
        model = tiny_llama()
    name = folder_with(model, tmp_path)
    read = tokeniser(name)
    assert read(["paris is the capital of france ."]) == [[0, 2, 3, 4, 5, 6, 8]]
    assert read.context == 256
    network = build_text(name, 5)
    ids = torch.tensor([[0, 2, 3, PADDING]], dtype=torch.int32)
    with torch.no_grad():
        own = model.model(input_ids=ids[:, :3].long()).last_hidden_state[:, -1]
        features = network.represent(network.initial_parameters(), ids)
        torch.testing.assert_close(network.head.last_hidden(features), own)


def test_folders_in_the_cache_go_by_their_hub_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path))
    folder_with(tiny_llama(), tmp_path / "weights" / "someone" / "model")
    assert build_text("hf:someone/model", 5).name == "hf:someone/model"


def test_another_base_is_another_network(tmp_path):
    described = set()
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(seed)
            name = folder_with(tiny_llama(), tmp_path / str(seed))
        described.add(repr(build_text(name, 5).body))
    described.add(repr(build_text(name, 5, rank=4).body))
    assert len(described) == 3


def small(kind: str, **sizes: object) -> "transformers.PreTrainedModel":
    config = transformers.AutoConfig.for_model(kind, **sizes)
    return transformers.AutoModelForCausalLM.from_config(config)


SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen3", "olmo2", "gemma"])
def test_models_built_like_llama_are_taken(tmp_path, kind):
    network = build_text(folder_with(small(kind, **SIZES), tmp_path), 3)
    assert network.logits(network.initial_parameters(), tokens(10, 4)).shape == (2, 3)


def test_models_that_do_more_than_call_their_layers_are_refused(tmp_path):
    name = folder_with(small("granite", **SIZES, embedding_multiplier=12.0), tmp_path)
    with pytest.raises(FedadeError, match=r"differ from the model itself by .*; choose a model built like Llama"):
        build_text(name, 3)


def test_models_without_a_list_of_layers_are_refused(tmp_path):
    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2}
    name = folder_with(small("gpt2", **sizes), tmp_path)
    with pytest.raises(FedadeError, match=r"GPT2Model has no layers, norm, rotary_emb; choose"):
        build_text(name, 3)


@pytest.mark.parametrize(
    ("adapters", "told"),
    [
        ({"targets": ("q_proj", "query")}, r"targets: tiny-llama has no module 'query'; it has down_proj, .*q_proj"),
        ({"targets": ("input_layernorm",)}, r"targets: input_layernorm of tiny-llama cannot be adapted"),
        ({"shared_layers": 4}, r"shared_layers: 4 of the 4 layers .*; give 1 to 3"),
        ({"first_layer": 2}, r"first_layer: 2 leaves no adapter to share below layer 2; give 0 to 1"),
    ],
)
def test_adapters_that_do_not_fit_are_refused_in_one_line(adapters, told):
    with pytest.raises(FedadeError, match=told) as raised:
        build_text("tiny-llama", 3, **adapters)
    assert "\n" not in str(raised.value)


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FedadeError, match=r"hf:/nowhere/model: no such file or folder; give a folder"):
        build_text("hf:/nowhere/model", 3)
    with pytest.raises(FedadeError, match=r"hf:no-one/no-model: its weights cannot be loaded \(.*\); give") as raised:
        build_text("hf:no-one/no-model", 3)
    assert "\n" not in str(raised.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedadeError, match=r"its weights cannot be loaded \(.*\); give a local folder"):
        build_text(f"hf:{tmp_path / 'empty'}", 3)
    tiny_llama().save_pretrained(tmp_path / "wordless")
    with pytest.raises(FedadeError, match=r"its tokeniser cannot be loaded \(.*\); give a local folder"):
        tokeniser(f"hf:{tmp_path / 'wordless'}")
    pair = tmp_path / "pair"
    pair.mkdir()
    for packed in ("a.gguf", "b.gguf"):
        (pair / packed).write_bytes(b"GGUF")
    with pytest.raises(FedadeError, match=r"has 2 GGUF files; name one, such as .*a\.gguf"):
        build_text(f"hf:{pair}", 3)
    with pytest.raises(FedadeError, match=r"its weights cannot be loaded") as raised:
        build_text(f"hf:{pair / 'a.gguf'}", 3)
    assert "\n" not in str(raised.value)


def test_weights_that_would_be_unpickled_are_refused(tmp_path):
    model = tiny_llama()
    name = folder_with(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(FedadeError, match="its weights cannot be loaded"):
        build_text(name, 3)
