"""Language models and tokenisers that `transformers` loads: a hub name, a local folder, or a GGUF file."""

import json
import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors import SafetensorError

from fedade.core.errors import FedadeError, first_line
from fedade.core.importing import OptionalModule
from fedade.core.paths import cache_dir

transformers: Any = OptionalModule("transformers", "text")
huggingface_hub: Any = OptionalModule("huggingface_hub", "text")
transformers_logging: Any = OptionalModule("transformers.utils.logging", "text")

_LOADING_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError, struct.error,
)  # fmt: skip
"""What `transformers` raises for weights that are absent, broken or of an unknown kind."""

_PUBLISHED = ["*.json", "*.safetensors", "*.model", "*.txt"]
"""Files of a model on the hub that are read: no weights that would be unpickled."""
_PROBE = "Paris is the capital of France."


class PretrainedTokeniser:
    """A model's own tokeniser, with the special tokens that the model expects."""

    def __init__(self, tokeniser: Any, context: int) -> None:
        self._tokeniser = tokeniser
        self.context = context
        """Tokens that the model can read at once."""
        identity = json.dumps([sorted(tokeniser.get_vocab().items()), self([_PROBE])])
        self.fingerprint = blake2b(identity.encode(), digest_size=12).hexdigest()

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._tokeniser(list(texts), verbose=False)["input_ids"]
        return ids


def load_model(name: str) -> Any:
    with _loading(name, "weights"):
        load = transformers.AutoModelForCausalLM.from_pretrained
        return load(_source(name), dtype=torch.float32, use_safetensors=True)  # others would be unpickled


def load_tokeniser(name: str) -> PretrainedTokeniser:
    with _loading(name, "tokeniser"):
        source = _source(name)
        config = transformers.AutoConfig.from_pretrained(source)
        positions = config.max_position_embeddings
        # Models with a sliding window are read within it, where it makes no difference.
        context = int(min(positions, getattr(config, "sliding_window", None) or positions))
        return PretrainedTokeniser(transformers.AutoTokenizer.from_pretrained(source), context)


def _source(name: str) -> str:
    """The folder that `transformers` reads. Folders and files are looked for as given, then among the weights in our
    cache, then on the hub or in its cache."""
    for path in (Path(name).expanduser(), cache_dir() / "weights" / name):
        if path.is_file() and path.suffix == ".gguf":
            return str(_converted(path))
        if path.is_dir():
            packed = sorted(path.glob("*.gguf"))
            if (path / "config.json").exists() or not packed:
                return str(path)
            if len(packed) > 1:
                raise FedadeError(
                    f"hf:{name}: {path} has {len(packed)} GGUF files; name one, such as hf:{name}/{packed[0].name}"
                )
            return str(_converted(packed[0]))
    if name.endswith(".gguf") or name.startswith(("/", ".", "~")):
        raise FedadeError(f"hf:{name}: no such file or folder; give a folder with weights, a GGUF file or a hub name")
    return str(huggingface_hub.snapshot_download(name, allow_patterns=_PUBLISHED))


def _converted(packed: Path) -> Path:
    """A folder with the model and tokeniser of a GGUF file, unpacked once, because unpacking takes half a minute."""
    folder = cache_dir() / "weights" / f"{packed.stem}-{_digest(packed)}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        with redirect_stderr(StringIO()):  # a bar that nothing else switches off
            model = transformers.AutoModelForCausalLM.from_pretrained(
                packed.parent, gguf_file=packed.name, dtype=torch.float32
            )
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(making)
        transformers.AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name).save_pretrained(making)
        os.replace(making, folder)
    except OSError:
        if not folder.exists():  # else another process was first
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _digest(path: Path, ends: int = 2**22) -> str:
    """Tells files apart by their size, beginning and end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = blake2b(str(size).encode() + file.read(ends), digest_size=6)
        file.seek(max(0, size - ends))
        digest.update(file.read())
    return digest.hexdigest()


@contextmanager
def _loading(name: str, what: str) -> Iterator[None]:
    """Errors in one line, and none of the library's own bars and remarks: progress is the command line's to show."""
    try:
        level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(level)
            if bars:
                transformers_logging.enable_progress_bar()
    except ImportError as error:
        raise FedadeError(
            f"hf:{name}: {first_line(error)}; install what it needs with: pip install 'fedade[text]'"
        ) from error
    except _LOADING_ERRORS as error:
        raise FedadeError(
            f"hf:{name}: its {what} cannot be loaded ({first_line(error)}); "
            "give a local folder with safetensors and tokeniser, a GGUF file, or a hub name that can be downloaded"
        ) from error
