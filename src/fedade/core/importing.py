"""What users name by an import path: networks, datasets, methods, streams."""

import importlib
from typing import Any

from fedade.core.errors import FedadeError, first_line


def import_attribute(path: str, named: str, expected: str = "package.module:attribute") -> Any:
    """What `package.module:attribute` names; `named` is what the user wrote, and `expected` its form.

    >>> import_attribute("math:pi", "pi")
    3.141592653589793
    """
    module_name, _, attributes = path.partition(":")
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
