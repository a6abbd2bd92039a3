"""The command `timetrial`: `timetrial run` is launch.py, other commands are those of `python -m tracking`."""

from __future__ import annotations

import sys

from tracking import cli as commands
from tracking.base.installation import PREFIX

RUN = ("run", "train and measure: `run model=vgg seed=1`, a sweep with `run -m`; `run --help` lists the options")
NAME = "timetrial" if PREFIX else "python -m timetrial"


def main() -> int:
    """Run launch.py or a command. Returns its exit code."""
    if sys.argv[1:2] != ["run"]:
        return commands.main(prog=NAME, others=[RUN])
    sys.argv[:2] = [f"{NAME} run"]  # the program's name in Hydra's messages
    import launch  # Only here, because the other commands do not need Hydra.

    return launch.main()
