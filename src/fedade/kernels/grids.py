"""How many programs a kernel is launched with."""

import math

MOST_PROGRAMS = 2**31 - 1
"""Along the first axis of a grid. Along the others a GPU takes 65,535, which a few federations of a hundred clients
exceed: every grid here has one axis, and programs divide their number."""


def grid(*counts: int) -> tuple[int]:
    """One axis for all of them, the first count running fastest."""
    programs = math.prod(counts)
    if programs > MOST_PROGRAMS:
        raise ValueError(f"{programs} programs are more than a GPU takes at once; let fewer clients share a batch")
    return (programs,)
