"""python -m timetrial: the same as the command `timetrial`."""

from __future__ import annotations

import sys

from timetrial.entry_point import main

if __name__ == "__main__":
    sys.exit(main())
