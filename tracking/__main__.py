"""python -m tracking NAME: the commands beside launch.py."""

from __future__ import annotations

import sys

from tracking.cli import main

if __name__ == "__main__":
    sys.exit(main())
