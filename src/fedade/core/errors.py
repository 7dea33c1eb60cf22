"""The one exception that users meet: a line that names the thing and the remedy."""

LONGEST = 200
"""Characters of another library's complaint inside a message."""


class FedadeError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with 2.

    >>> import fedade
    >>> fedade.simulate(["fed-abe"])
    Traceback (most recent call last):
    fedade.core.errors.FedadeError: unknown method 'fed-abe'; did you mean fed-ade?
    """


class DeviceLostError(FedadeError):
    """The GPU answers this process no more, and all that it would still run there would fail."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(
            f"the GPU failed ({first_line(why)}); start the same command again for what is left, with --retry-failed "
            "for what was running, too"
        )


def first_line(error: BaseException) -> str:
    """The first line of what another library, or a stranger's code, complains of; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:LONGEST].rstrip(".")
