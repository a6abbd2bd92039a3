"""launch.py called in a process that has imported it already: for requests that are refused, many a second.

A server process of multiprocessing's imports Hydra and `launch` once and is forked for each request, so that none of
them finds anything of another. What `python launch.py` itself does in a process of its own, tests.commands shows.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from unittest import mock

from tests.commands import HANGS_SEC, ROOT, Launched, environment

PRELOADED = ["pytest", __name__, "launch", "tracking.jobs", "tracking.environment.nvml", "trainers.stack"]
OUTPUT = "output.txt"  # beside the folder that the request is made in


def launch(cwd: Path, *arguments: str, **extra_env: str) -> Launched:
    """What `python launch.py ARGUMENTS` answers in that folder, if it gets as far as starting no worker."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    output = cwd.with_name(f"{cwd.name}-{OUTPUT}")
    process = context.Process(target=_launch, args=(cwd, output, arguments, extra_env))
    with mock.patch.dict(os.environ, environment()):  # the server looks for modules where PYTHONPATH says
        process.start()
    process.join(HANGS_SEC)
    assert process.exitcode is not None, output.read_text()
    return Launched(process.exitcode, output.read_text(), cwd)


def _launch(cwd: Path, output: Path, arguments: tuple[str, ...], extra_env: dict[str, str]) -> None:
    """In the new process: be what a shell would have started."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        del os.environ[name]
    os.environ.update(extra_env)
    os.chdir(cwd)
    sys.argv = [str(ROOT / "launch.py"), *arguments]
    import launch

    sys.exit(launch.main())
