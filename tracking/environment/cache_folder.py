"""Where data that were generated or parsed once are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache() -> Path:
    """$TIMETRIAL_CACHE, else timetrial in $XDG_CACHE_HOME, in ~/.cache or, for a user without a home, in /tmp."""
    if own := os.environ.get("TIMETRIAL_CACHE"):
        return Path(own).expanduser()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "timetrial"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "timetrial"
