"""Where things are kept between runs."""

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Trained models and generated images; `FEDADE_CACHE` names another place."""
    return Path(os.environ.get("FEDADE_CACHE") or platformdirs.user_cache_dir("fedade"))
