"""A method for a client that runs on its own, by name or as an object."""

import json
from typing import Any

from pydantic import ValidationError

from fedade.core.errors import FedadeError
from fedade.core.method import Deployment, Method
from fedade.experiments.settings import build_method, explain
from fedade.methods import METHODS, method_class


def refuse_undeployed(deployment: Any) -> None:
    """Refuse a model that was given in place of its deployment."""
    if not isinstance(deployment, Deployment):
        raise FedadeError(f"this is a {type(deployment).__name__}, no deployment; pass fedade.deploy(model, held_out)")


def choose_method(method: Any, settings: dict[str, Any]) -> Method:
    """The method with these settings, refused where it needs what a lone client does not have."""
    if isinstance(method, Method):
        if settings:
            raise FedadeError(f"{', '.join(settings)}: a method object has its settings already; give them to that")
        chosen = method
    elif not isinstance(method, str):
        called = f"the class {method.__name__}" if isinstance(method, type) else f"a {type(method).__name__}"
        raise FedadeError(f"method is {called}; pass its name, or an object")
    else:
        chosen = build_method(method, settings)
    if chosen.card.oracle:
        raise FedadeError(
            f"{_called(method)} is an oracle: it needs labels, which only the simulator has; choose another"
        )
    if chosen.replays_rates_of is not None:
        raise FedadeError(
            f"{_called(method)} replays rates that a run of {chosen.replays_rates_of} measured; use it in the simulator"
        )
    return chosen


def describe(method: Method) -> dict[str, Any]:
    """What is stored of a method: a registered name or a class, and all its settings."""
    kind = type(method)
    names = [name for name, make in METHODS.items() if getattr(make, "func", make) is kind]
    name = names[0] if names else f"{kind.__module__}:{kind.__qualname__}"
    return {"method": name, "settings": json.loads(method.model_dump_json())}


def described_method(said: dict[str, Any], given: Method | None) -> Method:
    """The stored method: rebuilt if it is registered, else the given one, which must be the same."""
    if given is not None:
        if describe(given) != {name: said[name] for name in ("method", "settings")}:
            raise FedadeError(
                f"stored for {said['method']} with {said['settings']}, not for {describe(given)['method']} with "
                f"{describe(given)['settings']}; load it with the same method"
            )
        return given
    make: Any = method_class(said["method"])
    try:
        built: Method = getattr(make, "func", make).model_validate_json(json.dumps(said["settings"]))
    except ValidationError as error:
        raise FedadeError(f"stored settings are not of this version: {explain(error, said['method'])}") from error
    return built


def _called(method: str | Method) -> str:
    return method if isinstance(method, str) else type(method).__name__
