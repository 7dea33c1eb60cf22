"""Libraries that are imported when first used: those of an extra, missed with a remedy, and slow ones."""

import importlib
from typing import Any

from fedade.core.errors import FedadeError


class OptionalModule:
    """Stands for a module that may not be installed, or takes long to import."""

    def __init__(self, name: str, extra: str | None = None, package: str | None = None) -> None:
        """The module, and the extra of ours that brings it, or another package that does."""
        self._name = name
        self._package = package or ("fedade" if extra is None else f"fedade[{extra}]")

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # someone looks at the stand-in itself: a debugger, doctest, copy
            raise AttributeError(attribute)
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            raise FedadeError(
                f"{self._name} cannot be imported ({error}); install it with: pip install '{self._package}'"
            ) from error
        return getattr(module, attribute)
