"""Networks from elsewhere: any timm model, any `nn.Module` by import path."""

import importlib
from typing import Any

from torch import nn

from fedade.core.errors import FedadeError
from fedade.core.optional import OptionalModule
from fedade.models.batch_norm import convert_batch_norms

timm: Any = OptionalModule("timm", "timm")


def timm_parts(name: str, channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Body and head of a timm model, without pre-trained weights."""
    try:
        model = timm.create_model(name, pretrained=False, num_classes=num_classes, in_chans=channels)
    except RuntimeError as error:
        raise FedadeError(f"timm:{name}: {error}; `timm.list_models()` names all") from error
    head = model.get_classifier()
    model.reset_classifier(0)
    return convert_batch_norms(model), head


def imported_parts(path: str, _channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Body and head of the module that `package.module:callable` returns for a number of classes.

    The head is the last linear layer, which must be the last thing that the module computes.
    """
    module_name, _, attribute = path.partition(":")
    try:
        model = getattr(importlib.import_module(module_name), attribute)(num_classes)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise FedadeError(
            f"import:{path} cannot be built ({error}); expected import:package.module:callable"
        ) from error
    linear = [name for name, child in model.named_modules() if isinstance(child, nn.Linear)]
    if not isinstance(model, nn.Module) or not linear:
        raise FedadeError(f"import:{path} has no linear layer to serve as head")
    head = model.get_submodule(linear[-1])
    parent, _, leaf = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), leaf, nn.Identity())
    return convert_batch_norms(model), head
