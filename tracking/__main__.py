"""python -m tracking NAME: the commands beside launch.py."""

import sys

from tracking.base.installation import refuse_python

try:
    from tracking.cli import main
except ModuleNotFoundError as error:
    refuse_python(error, "python -m tracking")

if __name__ == "__main__":
    sys.exit(main())
