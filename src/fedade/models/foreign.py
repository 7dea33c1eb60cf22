"""Networks from elsewhere: any `nn.Module` by import path, trained here or brought with its weights."""

import inspect

from torch import nn

from fedade.core.errors import FedadeError, first_line
from fedade.core.importing import import_attribute
from fedade.models.batch_norm import convert_batch_norms
from fedade.models.timm_models import trained_timm_model


def imported_parts(path: str, _channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Body and head of the module that `package.module:callable` returns for a number of classes.

    The head is the last linear layer, which must be the last thing that the module computes.
    """
    model = _made(path, num_classes)
    linear = [name for name, child in model.named_modules() if isinstance(child, nn.Linear)]
    if not linear:
        raise FedadeError(f"import:{path} has no linear layer to serve as head")
    head = model.get_submodule(linear[-1])
    parent, _, leaf = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), leaf, nn.Identity())
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
