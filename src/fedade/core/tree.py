"""Trees of tensors: the form in which methods keep their state, whatever its structure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedade.core import storage
from fedade.core.errors import FedadeError

Tree = Any
"""Nested NamedTuples, tuples, lists and dicts whose leaves are tensors."""


leaves: Callable[[Tree], list[Tensor]] = pytree.tree_leaves
"""The tensors of a tree, in a fixed order."""
tree_map: Callable[..., Tree] = pytree.tree_map
"""Apply a function to corresponding leaves of trees."""


def choose(first: Tensor, tree: Tree, other: Tree) -> Tree:
    """The first of two trees of equal structure where a scalar is true, else the other; what both share stays."""
    return tree_map(lambda one, another: one if one is another else torch.where(first, one, another), tree, other)


def copied(tree: Tree) -> Tree:
    """A tree of the same values in memory of its own."""
    flat, structure = pytree.tree_flatten(tree)
    copies = [torch.empty_like(leaf, memory_format=torch.contiguous_format) for leaf in flat]
    copy_all(flat, copies)
    return pytree.tree_unflatten(copies, structure)


def copy_all(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Write tensors to others: on a GPU all of a kind by one kernel, if they lie alike in memory."""
    kinds: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for source, target in zip(sources, targets, strict=True):
        alike = source.dtype is target.dtype and source.is_contiguous() and target.is_contiguous()
        written, read = kinds.setdefault((source.dtype, source.device, alike), ([], []))
        written.append(target)
        read.append(source)
    for written, read in kinds.values():
        torch._foreach_copy_(written, read)


def repeat(tree: Tree, count: int) -> Tree:
    """`count` independent copies along a new leading axis."""
    return tree_map(lambda leaf: leaf.expand(count, *leaf.shape).clone(), tree)


def stack(trees: Sequence[Tree]) -> Tree:
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def each_row(function: Callable[..., Tree], *arguments: Tree) -> Tree:
    """A function of rows applied to one row of the leading axis after the other; the results, stacked."""
    count = len(leaves(arguments)[0])
    if count == 1:  # views, not copies
        return tree_map(lambda leaf: leaf.unsqueeze(0), function(*(take(argument, 0) for argument in arguments)))
    return stack([function(*(take(argument, row) for argument in arguments)) for row in range(count)])


def take(tree: Tree, rows: Tensor | int) -> Tree:
    """Rows of the leading axis: a copy for an index tensor, a view for one row."""
    return tree_map(lambda leaf: leaf[rows], tree)


def put(tree: Tree, rows: Tensor, values: Tree) -> None:
    """Write rows of the leading axis in place: for the owner of the storage only."""
    tree_map(lambda leaf, value: leaf.index_put_((rows,), value.to(leaf.dtype)), tree, values)


def take_each(tree: Tree, rows: Tensor) -> Tree:
    """As `take`, with rows `[F, A]` of their own for each entry of the leading axis."""
    return tree_map(lambda leaf: leaf[_entries(rows), rows], tree)


def put_each(tree: Tree, rows: Tensor, values: Tree) -> None:
    """As `put`, with rows `[F, A]` of their own for each entry of the leading axis."""
    tree_map(lambda leaf, value: leaf.index_put_((_entries(rows), rows), value.to(leaf.dtype)), tree, values)


def _entries(rows: Tensor) -> Tensor:
    return torch.arange(len(rows), device=rows.device).unsqueeze(-1)


def mapped(tree: Tree, folder: Path, stored: bool = False) -> Tree:
    """A tree of the same values whose tensors live in memory-mapped files, for states larger than memory. Leaf by leaf,
    and from views where leaves are such, so that an expanded tree never needs the memory of its copies. With `stored`
    the values are those that the files hold already, and the tree says only what they look like."""
    folder.mkdir(parents=True, exist_ok=True)

    def on_disk(name: str, leaf: Tensor) -> Tensor:
        path, size = folder / f"{name}.bin", max(1, leaf.numel() * leaf.element_size())
        if stored and (not path.exists() or path.stat().st_size != size):
            raise FedadeError(f"checkpoint: {path} is missing or has another size; delete its folder to start again")
        if not stored:
            storage.reserve(path, size)
        tensor = torch.from_file(str(path), shared=True, size=leaf.numel(), dtype=leaf.dtype).view(leaf.shape)
        return tensor if stored else tensor.copy_(leaf)

    flat, structure = pytree.tree_flatten(tree)
    return pytree.tree_unflatten([on_disk(str(place), leaf) for place, leaf in enumerate(flat)], structure)


def num_bytes(tree: Tree) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def to_named(tree: Tree, prefix: str) -> dict[str, Tensor]:
    """The leaves under names that follow the structure, for storage."""
    paths, _ = pytree.tree_flatten_with_path(tree)
    return {prefix + pytree.keystr(path): leaf.contiguous() for path, leaf in paths}


def from_named(like: Tree, named: dict[str, Tensor], prefix: str) -> Tree:
    """The inverse of `to_named`, for a tree of the same structure as `like`."""
    paths, structure = pytree.tree_flatten_with_path(like)
    restored = []
    for path, leaf in paths:
        name = prefix + pytree.keystr(path)
        if name not in named or named[name].shape != leaf.shape:
            raise FedadeError(f"checkpoint: {name} is missing or has another shape; delete it to start again")
        restored.append(named[name].to(leaf.device, leaf.dtype))
    return pytree.tree_unflatten(restored, structure)
