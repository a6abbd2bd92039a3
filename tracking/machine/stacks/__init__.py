"""The software stacks: their declarations, whether they can run here, and their environments.

`judge_all` and `check_verdicts` compare the needs of a launch's stacks with this machine, before anything is built.
`make_all` builds or fetches missing environments and images. `python_of` gives the interpreter of a worker, and
`container` plans its container.
"""

from tracking.machine.stacks import container, container_images, uv_environment
from tracking.machine.stacks.check import (
    Judged,
    by_name,
    check_verdicts,
    image_of,
    judge_all,
    make_all,
    python_of,
    ready,
    summary,
)
from tracking.machine.stacks.declaration import check_promise, declared
from tracking.machine.stacks.engines import Mount
from tracking.machine.stacks.interpreter import Interpreter, needed_by, needs, probe
from tracking.machine.stacks.refused_stacks import RefusedStacks
from tracking.machine.stacks.releases import MIN_DRIVER
from tracking.machine.stacks.verdict import Verdict, judge, verdict_table

__all__ = [
    "MIN_DRIVER", "Interpreter", "Judged", "Mount", "RefusedStacks", "Verdict", "by_name", "check_promise",
    "check_verdicts", "container", "container_images", "declared", "image_of", "judge", "judge_all", "make_all",
    "needed_by", "needs", "probe", "python_of", "ready", "summary", "uv_environment", "verdict_table",
]  # fmt: skip
