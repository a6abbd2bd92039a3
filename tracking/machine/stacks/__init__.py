"""The software stacks: what is declared, whether it can run here, and the environments that are made of it.

`judge_all` and `check_verdicts` say what the stacks of a launch need and what was found, before anything is built;
`make_all` builds or fetches what is not there, once; `python_of` is the interpreter that a worker then runs on, and
`container` plans the container that it is in.
"""

from __future__ import annotations

from tracking.machine.stacks import container, container_images, uv_environment
from tracking.machine.stacks.check import check_verdicts, image_of, judge_all, make_all, python_of, ready, summary
from tracking.machine.stacks.declaration import declared
from tracking.machine.stacks.engines import Mount
from tracking.machine.stacks.expectation import check_promise
from tracking.machine.stacks.interpreter import Interpreter, needed_by, needs, probe
from tracking.machine.stacks.refused_stacks import RefusedStacks
from tracking.machine.stacks.releases import MIN_DRIVER
from tracking.machine.stacks.verdict import Verdict, judge, verdict_table

__all__ = [
    "MIN_DRIVER",
    "Interpreter",
    "Mount",
    "RefusedStacks",
    "Verdict",
    "check_promise",
    "check_verdicts",
    "container",
    "container_images",
    "declared",
    "image_of",
    "judge",
    "judge_all",
    "make_all",
    "needed_by",
    "needs",
    "probe",
    "python_of",
    "ready",
    "summary",
    "uv_environment",
    "verdict_table",
]
