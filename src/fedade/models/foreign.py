"""Networks from elsewhere, any `nn.Module` by import path or of timm: trained here, or brought with their weights."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core import storage
from fedade.core.errors import FedadeError, first_line
from fedade.core.importing import OptionalModule, import_attribute
from fedade.models.batch_norm import convert_batch_norms, refuse_hooked_batch_norms
from fedade.models.image import UnitImages

timm: Any = OptionalModule("timm", "timm")


def imported_parts(path: str, _channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Body and head of the module that `package.module:callable` returns for a number of classes. The head is the last
    linear layer, which must be the last thing that the module computes."""
    model = _made(path, num_classes)
    linear = [name for name, child in model.named_modules() if isinstance(child, nn.Linear)]
    if not linear:
        raise FedadeError(f"import:{path} has no linear layer to serve as head")
    refuse_hooked_batch_norms(model)
    head = model.get_submodule(linear[-1])
    model.set_submodule(linear[-1], nn.Identity())
    return convert_batch_norms(model), head


def brought_module(name: str) -> nn.Module:
    """The trained module that a name of `scenario.model` stands for, with its own weights."""
    family, _, rest = name.partition(":")
    if family == "timm":
        return trained_timm_model(rest)
    if family != "import":
        said = f"{name} has no weights of its own, and scenario.pretraining is none" if name else "none is named"
        raise FedadeError(
            f"scenario.model: {said}; name a function that returns a trained module, import:package.module:function, "
            "or a file, deployment:PATH"
        )
    return _made(rest)


def _made(path: str, *arguments: int) -> nn.Module:
    """The module at `package.module:attribute`, or what the callable there returns for the arguments."""
    named, expected = f"import:{path}", "import:package.module:callable"
    make = import_attribute(path, named, expected)
    if isinstance(make, nn.Module):
        return make
    given = f"({', '.join(map(str, arguments))})"
    try:
        inspect.signature(make).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise FedadeError(f"{named} cannot be called with {given} ({error}); expected {expected}") from error
    try:
        model = make(*arguments)
    except Exception as error:  # whatever a stranger's code raises
        raise FedadeError(
            f"{named}{given} fails ({type(error).__name__}: {first_line(error)}); mend the function"
        ) from error
    if not isinstance(model, nn.Module):
        raise FedadeError(f"{named} returns a {type(model).__name__}; it must return an nn.Module")
    return model


class Resized(nn.Module):
    """Images of the size that a network takes, whatever size they have."""

    def __init__(self, input_size: tuple[int, int, int]) -> None:
        super().__init__()
        self.size = tuple(input_size[1:])

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) == self.size:
            return images
        return F.interpolate(images, self.size, mode="bilinear", antialias=True, align_corners=False)


def timm_parts(name: str, channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Body and head of a timm model with fresh weights; images are resized where it takes one size only."""
    model = _created(name, pretrained=False, num_classes=num_classes, in_chans=channels)
    head = model.get_classifier()
    model.reset_classifier(0)
    body = convert_batch_norms(model)
    described: Mapping[str, Any] = model.pretrained_cfg
    return (nn.Sequential(Resized(described["input_size"]), body) if described.get("fixed_input_size") else body), head


def trained_timm_model(location: str) -> nn.Module:
    """A timm model with trained weights, which takes images of any size from 0 to 1. The weights are timm's own, from
    its cache or the hub; or those of a file, `NAME?weights=FILE.safetensors`, whose classifier says how many classes
    there are."""
    name, question, option = location.partition("?")
    key, _, file = option.partition("=")
    if question and (key != "weights" or not file):
        raise FedadeError(f"timm:{location}: unknown option {option!r}; the one option is ?weights=FILE.safetensors")
    model = _with_file(name, Path(file).expanduser()) if file else _created(name, pretrained=True)
    described = model.pretrained_cfg
    return nn.Sequential(Resized(described["input_size"]), UnitImages(described["mean"], described["std"]), model)


def _with_file(name: str, file: Path) -> Any:
    if not file.is_file():
        raise FedadeError(f"timm:{name}: {file} is missing; name a file of safetensors")
    tensors, _ = storage.load_tensors(file)
    classifier = f"{_created(name, pretrained=False).pretrained_cfg['classifier']}.weight"
    if classifier not in tensors:
        raise FedadeError(f"timm:{name}: {file} has no {classifier}; are these the weights of another network?")
    model = _created(name, pretrained=False, num_classes=len(tensors[classifier]))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise FedadeError(
            f"timm:{name}: {file} does not fit ({first_line(error)}); bring weights of this network"
        ) from error
    return model


def _created(name: str, **options: Any) -> Any:
    try:
        return timm.create_model(name, **options)
    except OSError as error:
        raise FedadeError(
            f"timm:{name}: its weights are not on this disk and cannot be fetched ({first_line(error)}); name a file: "
            f"timm:{name}?weights=FILE.safetensors"
        ) from error
    except RuntimeError as error:
        raise FedadeError(f"timm:{name}: {first_line(error)}; `timm.list_models(pretrained=True)` names all") from error
