"""Where data that were generated or parsed once are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache() -> Path:
    """$TIMETRIAL_CACHE, else timetrial in $XDG_CACHE_HOME, in ~/.cache or, for a user without a home, in /tmp."""
    if own := os.environ.get("TIMETRIAL_CACHE"):
        return Path(own).expanduser()
    from platformdirs import user_cache_path  # Only here: an environment that needs no cache need not have it.

    try:
        return user_cache_path("timetrial", appauthor=False)
    except RuntimeError:  # The user has no home.
        return Path(tempfile.gettempdir()) / "timetrial"
