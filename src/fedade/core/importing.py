"""What is imported when it is asked for: what users name by an import path, libraries of an extra, and slow ones."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedade.core.errors import FedadeError, first_line


def import_attribute(path: str, named: str, expected: str = "package.module:attribute") -> Any:
    """What `package.module:attribute` names; `named` is what the user wrote, and `expected` its form.

    >>> import_attribute("math:pi", "pi")
    3.141592653589793
    """
    module_name, _, attributes = path.partition(":")
    if _allowed is not None and module_name not in _allowed:
        raise FedadeError(f"{named}: this host does not allow the import of {module_name}; its --allow-import can")
    try:
        value: Any = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            value = getattr(value, attribute)
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise FedadeError(
            f"{named} cannot be imported ({first_line(error)}); expected {expected}, in the current folder or on "
            "PYTHONPATH"
        ) from error
    return value


_allowed: tuple[str, ...] | None = None
"""Modules that may be named, where somebody else names them; None: any."""


@contextmanager
def only_imports(modules: Sequence[str] | None) -> Iterator[None]:
    """Within the block, what is named by an import path must be of one of these modules; None: of any."""
    global _allowed
    before, _allowed = _allowed, None if modules is None else tuple(modules)
    try:
        yield
    finally:
        _allowed = before


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
