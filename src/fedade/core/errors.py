"""The one exception that users meet: a line that names the thing and the remedy."""


class FedadeError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with 2.

    >>> import fedade
    >>> fedade.simulate(["fed-abe"])
    Traceback (most recent call last):
    fedade.core.errors.FedadeError: unknown method 'fed-abe'; did you mean fed-ade?
    """
