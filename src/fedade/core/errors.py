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


def first_line(error: BaseException) -> str:
    """The first line of what another library, or a stranger's code, complains of; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:LONGEST].rstrip(".")
