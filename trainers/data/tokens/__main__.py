"""Converts a share of a text to tokens: python -m trainers.data.tokens --folder FOLDER --share 0/2."""

import sys
from pathlib import Path

from trainers.data.cached.work_shares import CANNOT_WRITE, share_parser
from trainers.data.tokens.encoding import encode_share

if __name__ == "__main__":
    parser = share_parser("Cut a share of a text into tokens.")
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        print(encode_share(arguments.folder, *arguments.share))
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_WRITE)
