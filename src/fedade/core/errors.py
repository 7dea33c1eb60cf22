"""The one exception that users meet: a line that names the thing and the remedy."""


class FedadeError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with 2."""
