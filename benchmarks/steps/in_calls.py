"""Run commands side by side on a machine's GPUs, in calls of a few minutes that continue where the last one stopped.

For machines that are available for minutes at a time. The folder `out` gets a file with each command's output, the run
folders, and the reports. If a call ends during a sweep, the next call resumes it. A failed command does not stop the
others.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tracking.machine.environment import nvml

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = f"{ROOT / 'launch.py'}"
EIGHT = list(range(8))
STOP_SEC = 30.0  # reserved at a call's end, for launchers to stop their jobs and write their results
GRACE_SEC = 15.0  # of these, until a launcher is killed; it gives its worker five


class Command(NamedTuple):
    """`python words` on `gpus` GPUs; 0: alone on the machine, after all commands before it.

    It does not start if the call has less than `least_sec` left.
    """

    name: str
    words: str
    gpus: int = 0
    least_sec: float = 60.0


Commands = Callable[[list[int]], Iterable[Command]]  # from the indices of a machine's GPUs


def sweep(overrides: str, runs_dir: str) -> str:
    return f"{LAUNCH} -m tracking.offline=true {overrides} runs_dir={runs_dir}"


def main(about: str, commands: Commands, default: str) -> int:
    """Exit code: 0 if all commands have ended, failed ones included; 1 if another call must continue."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(default))
    parser.add_argument("--minutes", type=float, default=10.0, help="length of a call")
    parser.add_argument("--only", default="", help="run only commands whose names match this regular expression")
    parser.add_argument("--dry-run", action="store_true", help="print the commands for eight GPUs, run none")
    arguments = parser.parse_args()
    indices = EIGHT if arguments.dry_run else [gpu.index for gpu in nvml.visible_gpus()]
    if not indices:
        parser.error("no NVIDIA GPU is visible; --dry-run prints the commands")
    chosen = [command for command in commands(indices) if re.search(arguments.only, command.name)]
    if arguments.dry_run:
        for command in chosen:
            print(f"{command.name}: python {command.words}")
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, end)
    return measure(chosen, indices, arguments.out, time.monotonic() + 60 * arguments.minutes)


def end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def measure(commands: Iterable[Command], indices: list[int], out: Path, until: float) -> int:
    """Run the commands that are not done yet, in order, each as soon as enough GPUs are free."""
    waiting = [command for command in commands if not done(out, command).exists()]
    machine, left_out = Machine(indices, out), []
    try:
        while waiting or machine.running:
            left_sec = until - time.monotonic() - STOP_SEC
            left_out += [command for command in waiting if left_sec < command.least_sec]
            waiting = [command for command in waiting if left_sec >= command.least_sec]
            if left_sec <= 0:
                left_out += machine.stop()
            while waiting and machine.has_room_for(waiting[0]):
                if waiting[0].gpus == 0 and left_out:  # It may report on those left out.
                    left_out.append(waiting.pop(0))
                else:
                    machine.start(waiting.pop(0))
            machine.note_ended()
            time.sleep(0.1)
    finally:  # After Ctrl-C, too, no command stays on the GPUs.
        machine.stop()
    for command in left_out:
        print(f"{command.name}: not done; call this again to continue")
    if not left_out:
        print("all is done")
    return 1 if left_out else 0


class Machine:
    """The GPUs with these `indices`, and the commands that run on them. Their output goes to files in `out`."""

    def __init__(self, indices: list[int], out: Path) -> None:
        self.running: list[tuple[Command, list[int], subprocess.Popen[bytes]]] = []
        self._free, self._number, self._out = list(indices), len(indices), out

    def has_room_for(self, command: Command) -> bool:
        return len(self._free) >= (command.gpus or self._number)

    def start(self, command: Command) -> None:
        width = command.gpus or self._number
        gpus, self._free = self._free[:width], self._free[width:]
        # Without stored bytecode each process would compile torch's sources, which takes six seconds and more.
        bytecode = str(self._out.resolve() / "bytecode")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if width < self._number:
            environment |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        printed = self._out / f"{command.name}.txt"
        words = [sys.executable, *shlex.split(continued(command.words, printed))]
        with printed.open("a", encoding="utf-8") as file:
            process = subprocess.Popen(
                words, cwd=self._out, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self.running.append((command, gpus, process))

    def note_ended(self) -> None:
        for ended in [entry for entry in self.running if entry[2].poll() is not None]:
            command, gpus, process = ended
            self.running.remove(ended)
            self._free = sorted(self._free + gpus)
            done(self._out, command).write_text(f"{process.returncode}\n", encoding="utf-8")
            printed = self._out / f"{command.name}.txt"
            print(f"{command.name}: exit code {process.returncode}; {printed}", flush=True)

    def stop(self) -> list[Command]:
        """Stop all running commands, and kill the process groups of those that do not. Returns these commands."""
        for _, _, process in self.running:
            process.terminate()
        deadline = time.monotonic() + GRACE_SEC
        try:
            with suppress(subprocess.TimeoutExpired):
                for _, _, process in self.running:
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:  # A second Ctrl-C ends the wait.
            for _, _, process in self.running:
                with suppress(ProcessLookupError):  # The group has ended.
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        stopped = [command for command, _, _ in self.running]
        self.running.clear()
        return stopped


def done(out: Path, command: Command) -> Path:
    return out / f"{command.name}.done"


def continued(words: str, printed: Path) -> str:
    """The command that resumes the sweep in this output; `words` if it was not cut short."""
    cut = re.findall(r"sweep\.resume=(\S+)", printed.read_text(encoding="utf-8")) if printed.exists() else []
    runs_dir = re.search(r"runs_dir=\S+", words)
    return f"{LAUNCH} sweep.resume={cut[-1]} tracking.offline=true {runs_dir[0]}" if cut and runs_dir else words
