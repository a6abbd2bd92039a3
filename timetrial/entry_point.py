"""The command `timetrial`: `timetrial run` is launch.py, the others are those of `python -m tracking`."""

from __future__ import annotations

import sys

from tracking import cli as commands
from tracking.base.installation import PREFIX

RUN = ("run", "train and measure: `run model=vgg seed=1`, a sweep with `run -m`; `run --help` lists the options")
NAME = "timetrial" if PREFIX else "python -m timetrial"


def main() -> int:
    """The exit code, which is that of launch.py or of the command."""
    if sys.argv[1:2] != ["run"]:
        return commands.main(prog=NAME, others=[RUN])
    sys.argv[:2] = [f"{NAME} run"]  # Hydra's messages name it.
    import launch  # Not above, because the other commands need no Hydra.

    return launch.main()
