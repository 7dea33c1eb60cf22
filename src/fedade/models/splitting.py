"""A trained classifier as a network with a body and a head, whatever its code looks like."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedade.core.errors import FedadeError, first_line
from fedade.core.network import Network
from fedade.kernels import mapped
from fedade.models.batch_norm import convert_batch_norms, name_batch_norms, refuse_hooked_batch_norms
from fedade.models.traced import TracedPass, forward_traced, rounds_to, traced

MOST_CANDIDATES = 4
"""Linear layers that are tried as the head, from the last that ran backwards."""

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d

WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}


class Brought(NamedTuple):
    """A model that was brought, as this package computes with it."""

    network: Network
    parameters: dict[str, Tensor]
    head: str
    """The head's name in the module."""


class Unwrapped(nn.Module):
    """A module that returns a tensor where the original may return an object with `.logits`, a mapping or a tuple."""

    def __init__(self, model: nn.Module, unit_pixels: bool) -> None:
        super().__init__()
        self.model = model
        self.unit_pixels = unit_pixels
        """Whether bytes are given to the model as floats from 0 to 1, as it was trained; streams stay bytes."""
        self.plan: TracedPass | None = None
        self.not_traced = ""
        """Why there is no plan."""
        self.by_pixel = False
        """Whether images are laid out with the channels of a pixel side by side: convolutions on a CPU are then spared
        to do so, each on its way in and out."""

    def forward(self, inputs: Tensor) -> Tensor:
        return unwrapped(forward_traced(self.plan, self.model, self._as_trained(inputs))).float()

    def trace(self, inputs: Tensor) -> None:
        self.plan, self.not_traced = traced(self.model, self._as_trained(inputs))

    def takes_images_by_pixel(self, inputs: Tensor) -> bool:
        """Whether it answers such images alike when they lie by pixel, layer by layer and by its plan."""
        if inputs.ndim != 4 or not any(isinstance(part, nn.Conv2d) for part in self.modules()):
            return False
        laid = self._as_trained(inputs).contiguous(memory_format=torch.channels_last)
        try:
            by_layers, usual = unwrapped(self.model(laid)).float(), self(inputs)
            return all(rounds_to(made, usual) for made in (by_layers, self(laid)))
        except Exception:  # noqa: BLE001 - a stranger's code may count on how images lay in training
            return False

    def _as_trained(self, inputs: Tensor) -> Tensor:
        made = inputs.float() / 255 if self.unit_pixels and inputs.dtype is torch.uint8 else inputs
        if self.by_pixel and made.device.type == "cpu" and not (torch.is_grad_enabled() or mapped()):
            made = made.contiguous(memory_format=torch.channels_last)
        return made


def unwrapped(outputs: Any) -> Tensor:
    named = outputs.get("logits") if isinstance(outputs, dict) else None
    first = outputs[0] if isinstance(outputs, tuple | list) and outputs else None
    for candidate in (outputs, getattr(outputs, "logits", None), named, first):
        if isinstance(candidate, Tensor):
            return candidate
    raise FedadeError(
        f"the model returns {type(outputs).__name__}; it must return logits [n, K] or have them as .logits"
    )


@torch.no_grad()
def bring(model: nn.Module, batch: Tensor, head: str | None, unit_pixels: bool = False) -> Brought:
    """Split a copy of a trained module into body and head; the module itself is never changed. The head is the layer
    called `head`, or else the linear layer that computes the logits, which is found by running the batch. The copy is
    in float32 and evaluation mode: methods estimate small differences, for which half precision is too coarse."""
    whole = _copied(model, unit_pixels)
    refuse_hooked_batch_norms(whole.model)
    # A model that draws random numbers must not move the caller's.
    with torch.random.fork_rng(devices=[batch.device] if batch.is_cuda else []):
        logits = _checked_logits(whole, batch)
        return _first_that_fits(whole, batch, logits) if head is None else _split(whole, head, batch, logits)


def _copied(model: nn.Module, unit_pixels: bool) -> Unwrapped:
    if not isinstance(model, nn.Module):
        raise FedadeError(f"the model is a {type(model).__name__}; pass the trained nn.Module")
    model = _unwrapped_module(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise FedadeError("the model is TorchScript, which cannot be split; pass the nn.Module that it was made from")
    if any(nn.parameter.is_lazy(value) for value in (*model.parameters(), *model.buffers())):
        raise FedadeError("the model has layers that were never run (Lazy...); call it once, train it, then deploy it")
    if any(value.is_meta for value in model.parameters()):
        raise FedadeError("the model is on the meta device: load its weights, load_state_dict(..., assign=True)")
    try:
        copied = _without_wrappers(deepcopy(model))
        return Unwrapped(copied, unit_pixels).float().eval().requires_grad_(False)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise FedadeError(f"the model cannot be copied ({first_line(error)}); pass a plain nn.Module") from error


def _unwrapped_module(module: nn.Module) -> nn.Module:
    """What torch.compile, DataParallel or both were put around."""
    while (name := WRAPPERS.get(type(module).__name__)) is not None:
        module = getattr(module, name)
    return module


def _without_wrappers(module: nn.Module) -> nn.Module:
    """The same for all its parts: what was compiled does not see that layers are replaced."""
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _without_wrappers(_unwrapped_module(child))
    return module


def _checked_logits(whole: nn.Module, batch: Tensor) -> Tensor:
    """The module's logits, which must be `[n, K]`, finite, and the same when asked again."""
    logits, again = _run(whole, batch), _run(whole, batch)
    if logits.shape in ((len(batch),), (len(batch), 1)):
        raise FedadeError(
            f"the model gives {list(logits.shape)} for {len(batch)} inputs, one logit each; give its last linear layer "
            "two outputs, the first with weights and bias 0, which changes no probability"
        )
    if logits.ndim != 2 or len(logits) != len(batch) or logits.shape[1] < 2:
        raise FedadeError(
            f"the model gives {list(logits.shape)} for {len(batch)} inputs, not logits [n, K] with K of at least 2; "
            "wrap it in a module that does"
        )
    if not logits.isfinite().all():
        raise FedadeError("the model gives NaN or infinite logits on the held-out data; check its weights and inputs")
    if not torch.equal(logits, again):
        raise FedadeError("the model answers the same inputs differently each time; switch its randomness off")
    if not rounds_to(_run(whole, batch.flip(0)), logits.flip(0)):
        raise FedadeError(
            "the model answers the same inputs differently in another order; where that is a hook that writes to the "
            "model by name, which a copy of it then reads, make the hook a method of the model"
        )
    return logits


def _run(whole: nn.Module, batch: Tensor) -> Tensor:
    try:
        outputs: Tensor = whole(batch)
    except FedadeError:
        raise
    except Exception as error:  # whatever a stranger's code raises
        raise FedadeError(
            f"the model fails on held-out inputs of shape {list(batch.shape)} and type {batch.dtype}: "
            f"{first_line(error)}; {_remedy(whole, batch)}"
        ) from error
    return outputs


def _remedy(whole: nn.Module, batch: Tensor) -> str:
    if batch.ndim == 3 and any(isinstance(part, nn.Conv2d) for part in whole.modules()):
        return "grey images need an axis for their one channel: inputs[:, None]"
    if batch.ndim == 4 and batch.shape[1] == 1 and any(isinstance(part, nn.Conv1d) for part in whole.modules()):
        return "series [n, channels, length] of a file are read as grey images: take inputs[:, 0] inside the module"
    if batch.dtype is torch.uint8:
        return "pass what it was trained on, such as inputs.float() / 255"
    return "it is given one tensor, the inputs alone: wrap it in a module that makes all it needs of them"


def _first_that_fits(whole: Unwrapped, batch: Tensor, logits: Tensor) -> Brought:
    """Tried from the last that ran: later steps may still pick or average positions, which a linear layer allows."""
    num_classes = logits.shape[1]
    candidates = _ran(whole, batch, lambda part: isinstance(part, nn.Linear) and part.out_features == num_classes)
    reasons = []
    for name in candidates[:MOST_CANDIDATES]:
        try:
            return _split(whole, name, batch, logits)
        except FedadeError as error:
            reasons.append(str(error))
    ran = _ran(whole, batch, lambda part: isinstance(part, CONVOLUTIONS) and part.out_channels == num_classes)
    if ran and not reasons:
        raise FedadeError(f"no head was found, since {_not_a_head(whole, ran[0])}")
    reasons.append(f"no linear layer with {num_classes} outputs ran (is the model exported or quantised?)")
    raise FedadeError(f"no head was found: {reasons[0]}; pass head= with the name of the module that gives the logits")


def _not_a_head(whole: Unwrapped, convolution: str) -> str:
    kind = type(whole.get_submodule(f"model.{convolution}".rstrip("."))).__name__
    return (
        f"{convolution or 'the model'} is a {kind}, and features before the head must be [n, d]; where only pooling or "
        "flattening follows it, put these before it, and replace it by Flatten and a Linear with its weight.flatten(1)"
    )


def _ran(whole: nn.Module, batch: Tensor, fits: Callable[[nn.Module], bool]) -> list[str]:
    """Names of the layers that fit and ran, the last first."""
    ran: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in whole.named_modules()
        if fits(module)
    ]
    try:
        _run(whole, batch)
    finally:
        for handle in handles:
            handle.remove()
    return [name.removeprefix("model").removeprefix(".") for name in dict.fromkeys(reversed(ran))]


def _split(whole: Unwrapped, name: str, batch: Tensor, logits: Tensor) -> Brought:
    """The network whose head has this name; refused where the two together do not give the module's logits."""
    body, path = deepcopy(whole), f"model.{name}".rstrip(".")
    try:
        head = body.get_submodule(path)
    except AttributeError:
        known = [child for child, module in whole.model.named_modules() if isinstance(module, nn.Linear)]
        raise FedadeError(f"head={name!r} is not in the model; its linear layers: {', '.join(known[-8:])}") from None
    if isinstance(head, CONVOLUTIONS) and head.out_channels == logits.shape[1]:
        raise FedadeError(_not_a_head(whole, name))
    body.set_submodule(path, nn.Identity())
    holder = nn.ModuleDict({"head": head})  # so that a head which is a normalisation layer itself is converted too
    convert_batch_norms(body)
    head = convert_batch_norms(holder).get_submodule("head")
    name_batch_norms(body, "body")
    name_batch_norms(head, "head")
    body.eval().trace(batch)
    body.by_pixel = torch.backends.mkldnn.is_available() and body.takes_images_by_pixel(batch)  # type: ignore[no-untyped-call]
    network = Network(type(whole.model).__name__, body.eval(), head.eval())
    parameters = {
        f"{part}.{key}": value.detach()
        for part, module in (("body", body), ("head", head))
        for key, value in module.state_dict().items()
    }
    if not list(head.parameters()):
        raise FedadeError(f"{name} has no parameters")
    other = batch.flip(0)  # since what an earlier pass has kept is right for the same inputs
    try:
        features = network.represent(parameters, batch)
        made = network.classify(parameters, features), network.logits(parameters, other)
    except Exception as error:  # whatever a stranger's code raises
        raise FedadeError(f"without {name} the rest of the model fails ({first_line(error)})") from error
    if features.ndim != 2:
        raise FedadeError(f"before {name} there are features of shape {list(features.shape)}, not [n, d]")
    if not (rounds_to(made[0], logits) and rounds_to(made[1], logits.flip(0))):
        raise FedadeError(f"the output of {name} is not what the model returns (is there a softmax after it?)")
    return Brought(network, parameters, name)
