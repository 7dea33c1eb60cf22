from pathlib import Path

import pytest

from fedade.core import storage
from fedade.core.errors import FedadeError


def test_a_path_that_names_no_file_is_refused_in_one_line():
    with pytest.raises(FedadeError, match="cannot write /: a folder, not a file"):
        storage.write_bytes(Path("/"), b"")
