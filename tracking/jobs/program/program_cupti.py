"""Traces a program by CUPTI, through a hook in its Python: installs and starts it, and finds its traces."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from conf.schema import RunConfig
from tracking.jobs.program import cupti_hook
from tracking.measure import kernels

VARIABLE = "TIMETRIAL_CUPTI"


def is_traced(config: RunConfig) -> bool:
    """Whether CUPTI traces the program: profile=true without profile.file."""
    return config.profiled() and config.profile.file is None


def folder_of(run_dir: Path) -> Path:
    return run_dir.absolute() / f"{kernels.SCRATCH}cupti"


def prepare(run_dir: Path) -> None:
    """Write the hook where the program's Python finds it as sitecustomize.py. Raises OSError."""
    kernels.remove_scratch(run_dir)
    folder = folder_of(run_dir)
    folder.mkdir()
    shutil.copyfile(Path(cupti_hook.__file__), folder / "sitecustomize.py")


class Signal:
    """Tells the hook to begin once the training has run for profile.after_sec."""

    def __init__(self, config: RunConfig, run_dir: Path) -> None:
        self._config, self._go = config, folder_of(run_dir) / cupti_hook.GO
        self._began: float | None = None if config.program.start else time.monotonic()

    def tick(self, has_started: bool) -> None:
        """Called from time to time, with whether the program's training has begun."""
        if self._began is None and has_started:
            self._began = time.monotonic()
        profile = self._config.profile
        if self._began is not None and time.monotonic() - self._began >= profile.after_sec and not self._go.exists():
            part = self._go.with_suffix(".part")
            part.write_text(f"{profile.seconds}")
            part.replace(self._go)


def traces(config: RunConfig, run_dir: Path) -> list[Path]:
    """The traces of the program's processes. Raises ValueError with the reason if there is no trace."""
    folder, profile = folder_of(run_dir), config.profile
    if paths := sorted(folder.glob("trace-*.json"), key=_pid):
        return paths
    if not any(folder.glob("started-*")):
        raise ValueError(
            "profile=true: no Python of the program read PYTHONPATH, which starts the trace; python -I and -E ignore"
            " it. Next: let the program write its trace, and give profile.file="
        )
    if not (folder / cupti_hook.GO).exists():
        raise ValueError(
            f"profile=true: the program ended before profile.after_sec={profile.after_sec:g} of training."
            " Next: give less"
        )
    if errors := sorted(folder.glob("error-*.txt"), key=_pid):
        missing = ". Next: install cupti-python in the program's Python"
        words = errors[0].read_text(errors="replace")
        raise ValueError(f"profile=true: {words}{missing if 'No module named' in words else ''}")
    raise ValueError(
        f"profile=true: no process of the program had loaded CUDA when it was traced, or it ended within"
        f" profile.seconds={profile.seconds:g}. Next: give another profile.after_sec"
    )


def _pid(path: Path) -> int:
    return int(path.stem.partition("-")[2])
