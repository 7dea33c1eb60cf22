"""One client after the other: the reference, for debugging and for judging the others."""

from collections.abc import Callable

from fedade.core.tree import Tree, leaves, stack, take


def loop(function: Callable[..., Tree], *arguments: Tree) -> Tree:
    """Apply the function of one client to every row of its arguments."""
    count = len(leaves(arguments)[0])
    return stack([function(*(take(argument, row) for argument in arguments)) for row in range(count)])
