"""Puts the parts of a user's own dataset together, and refuses parts that do not fit."""

from pathlib import Path

from fedade.core.errors import FedadeError
from fedade.data.dataset import Dataset, Labelled
from fedade.data.labels import held_out_rows, require_every_class


def assemble(
    name: str, class_names: tuple[str, ...], train: Labelled, test: Labelled | None, source: Path | str
) -> Dataset:
    """A dataset of the two parts; without a test part every fifth training example of a class is held out."""
    one_part = test is None
    if test is None:
        held_out = held_out_rows(train.labels)
        test = Labelled(train.inputs[held_out], train.labels[held_out])
        train = Labelled(train.inputs[~held_out], train.labels[~held_out])
    require_every_class(train.labels, class_names, source)
    require_one_shape(train.inputs.shape[1:], test.inputs.shape[1:], source)
    return Dataset(name, class_names, train, test, one_part=one_part)


def require_one_shape(train: tuple[int, ...], test: tuple[int, ...], source: Path | str) -> None:
    """Raise when training and test inputs differ in shape."""
    if train != test:
        raise FedadeError(
            f"{source}: training inputs have shape {list(train)}, test inputs {list(test)}; they must agree"
        )
