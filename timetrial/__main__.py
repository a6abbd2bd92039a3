"""python -m timetrial: the same as the command `timetrial`."""

import sys

from timetrial.entry_point import main

if __name__ == "__main__":
    sys.exit(main())
