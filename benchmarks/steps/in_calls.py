"""Runs commands side by side on a machine's GPUs, in calls of some minutes that go on where the last one stopped.

For machines that are there for minutes at a time. What each command printed is in a file of the folder `out`, beside
the runs' folders and the sweeps' reports. A sweep that a call's end cuts short is resumed by the next one; a command
that fails does not stop the others.
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
STOP_SEC = 30.0  # what a launcher has to stop its job, and to write what there is
GRACE_SEC = 15.0  # of these, before it is killed; it gives its worker five


class Command(NamedTuple):
    """`words` behind `python`, on so many `gpus`. With 0 it is alone on the machine, after all that came before it.

    It is not begun where a call has less than `least_sec` left.
    """

    name: str
    words: str
    gpus: int = 0
    least_sec: float = 60.0


Commands = Callable[[list[int]], Iterable[Command]]  # those of a machine with GPUs of these indices


def sweep(overrides: str, runs_dir: str) -> str:
    return f"{LAUNCH} -m tracking.offline=true {overrides} runs_dir={runs_dir}"


def main(about: str, commands: Commands, default: str) -> int:
    """0 when all is done, also where a command failed, as is printed; 1 when another call has to go on."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(default))
    parser.add_argument("--minutes", type=float, default=10.0, help="how long a call may take")
    parser.add_argument("--only", default="", help="run only the commands whose names match this regular expression")
    parser.add_argument("--dry-run", action="store_true", help="print the commands for eight GPUs, and run none")
    arguments = parser.parse_args()
    indices = EIGHT if arguments.dry_run else [gpu.index for gpu in nvml.visible_gpus()]
    if not indices:
        parser.error("no NVIDIA GPU is visible here; --dry-run prints what would be run")
    asked = [command for command in commands(indices) if re.search(arguments.only, command.name)]
    if arguments.dry_run:
        for command in asked:
            print(f"{command.name}: python {command.words}")
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, end)
    return measure(asked, indices, arguments.out, time.monotonic() + 60 * arguments.minutes)


def end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def measure(commands: Iterable[Command], indices: list[int], out: Path, until: float) -> int:
    """Run what is not done yet, each as soon as its GPUs are free, in order."""
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
                if waiting[0].gpus == 0 and left_out:  # It may be a report of what came before it.
                    left_out.append(waiting.pop(0))
                else:
                    machine.start(waiting.pop(0))
            machine.note_ended()
            time.sleep(0.1)
    finally:  # Ended early, as by Ctrl-C, it leaves no command on the GPUs.
        machine.stop()
    for command in left_out:
        print(f"{command.name}: to be gone on with; call this again")
    if not left_out:
        print("all is done")
    return 1 if left_out else 0


class Machine:
    """GPUs of these `indices`, and the commands that run on them; what those print goes to files of `out`."""

    def __init__(self, indices: list[int], out: Path) -> None:
        self.running: list[tuple[Command, list[int], subprocess.Popen[bytes]]] = []
        self._free, self._number, self._out = list(indices), len(indices), out

    def has_room_for(self, command: Command) -> bool:
        return len(self._free) >= (command.gpus or self._number)

    def start(self, command: Command) -> None:
        width = command.gpus or self._number
        mine, self._free = self._free[:width], self._free[width:]
        # Where Python may keep no bytecode, each process would compile torch's sources anew, for six seconds and more.
        bytecode = str(self._out.resolve() / "bytecode")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if width < self._number:
            environment |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        printed = self._out / f"{command.name}.txt"
        words = [sys.executable, *shlex.split(continued(command.words, printed))]
        with printed.open("a", encoding="utf-8") as file:
            process = subprocess.Popen(
                words, cwd=self._out, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self.running.append((command, mine, process))

    def note_ended(self) -> None:
        for ended in [entry for entry in self.running if entry[2].poll() is not None]:
            command, mine, process = ended
            self.running.remove(ended)
            self._free = sorted(self._free + mine)
            done(self._out, command).write_text(f"{process.returncode}\n", encoding="utf-8")
            printed = self._out / f"{command.name}.txt"
            print(f"{command.name}: exit code {process.returncode}; {printed}", flush=True)

    def stop(self) -> list[Command]:
        """Tell all that run to stop, and kill what does not, with all of its process group; which they were."""
        for _, _, process in self.running:
            process.terminate()
        deadline = time.monotonic() + GRACE_SEC
        try:
            with suppress(subprocess.TimeoutExpired):
                for _, _, process in self.running:
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:  # Ctrl-C once more ends the patience.
            for _, _, process in self.running:
                with suppress(ProcessLookupError):  # All of it has ended.
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        stopped = [command for command, _, _ in self.running]
        self.running.clear()
        return stopped


def done(out: Path, command: Command) -> Path:
    return out / f"{command.name}.done"


def continued(words: str, printed: Path) -> str:
    """The command that resumes a sweep that was cut short; `words` where nothing was."""
    cut = re.findall(r"sweep\.resume=(\S+)", printed.read_text(encoding="utf-8")) if printed.exists() else []
    runs_dir = re.search(r"runs_dir=\S+", words)
    return f"{LAUNCH} sweep.resume={cut[-1]} tracking.offline=true {runs_dir[0]}" if cut and runs_dir else words
