"""Draws a dataset of shapes and prints its folder: python -m trainers.data.shapes --kind detection --size 2000."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

from conf.schema import ConfigError
from tracking.base import installation
from trainers.data.cached.work_shares import CANNOT_WRITE
from trainers.data.shapes.generated_files import Kind, draw_share, ensure


def main() -> None:
    prog = f"python -m {installation.module('trainers.data.shapes')}"
    parser = argparse.ArgumentParser(prog=prog, description="Draw a data set of shapes.")
    parser.add_argument("--kind", choices=get_args(Kind), required=True)
    parser.add_argument("--size", type=int, required=True, help="training images; an eighth as many are for validation")
    parser.add_argument("--path", help="folder in which the data set's folder is made; default: the user's cache")
    parser.add_argument("--share", help=argparse.SUPPRESS)  # n/of: draw only this share, directly into --path
    arguments = parser.parse_args()
    if arguments.share:
        share, of = map(int, arguments.share.split("/"))
        try:
            draw_share(arguments.kind, arguments.size, Path(arguments.path), share, of)
        except OSError as error:
            print(error, file=sys.stderr)
            sys.exit(CANNOT_WRITE)
        return
    try:
        print(ensure(arguments.kind, arguments.size, arguments.path))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
