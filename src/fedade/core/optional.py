"""Libraries that belong to an extra: imported when first used, and missed with a remedy."""

import importlib
from typing import Any

from fedade.core.errors import FedadeError


class OptionalModule:
    """Stands for a module that may not be installed."""

    def __init__(self, name: str, extra: str) -> None:
        self._name = name
        self._extra = extra

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # someone looks at the stand-in itself: a debugger, doctest, copy
            raise AttributeError(attribute)
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            raise FedadeError(
                f"{self._name} cannot be imported ({error}); install it with: pip install 'fedade[{self._extra}]'"
            ) from error
        return getattr(module, attribute)
