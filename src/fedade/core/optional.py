"""Libraries that are imported when first used: those of an extra, missed with a remedy, and slow ones."""

import importlib
from typing import Any

from fedade.core.errors import FedadeError


class OptionalModule:
    """Stands for a module that may not be installed, or takes long to import."""

    def __init__(self, name: str, extra: str | None = None) -> None:
        self._name = name
        self._extra = extra

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # someone looks at the stand-in itself: a debugger, doctest, copy
            raise AttributeError(attribute)
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            package = "fedade" if self._extra is None else f"fedade[{self._extra}]"
            raise FedadeError(
                f"{self._name} cannot be imported ({error}); install it with: pip install '{package}'"
            ) from error
        return getattr(module, attribute)
