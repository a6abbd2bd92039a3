"""ResNet-50 in PyTorch and in JAX on one GPU: rates, and the kernels of both by three profilers.

    python benchmarks/steps/framework_kernels.py                       # on a GPU
    python benchmarks/steps/framework_kernels.py --parts own --print   # print a part's commands only

This Python needs torch, jax with CUDA, flax, optax and, for `cupti` and `both`, cupti-python.

| part | what |
|---|---|
| `timed` | compares the frameworks, each as it comes and compiled |
| `own` | traces ten steps with each framework's own profiler, and compares the kernels |
| `cupti` | traces three seconds with CUPTI, and compares the kernels |
| `both` | the program traces itself first, then CUPTI; it should keep its profile, and the run should say so |
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.record import run_folder

PARTS = ("timed", "own", "cupti", "both")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--frameworks", default="pytorch,jax")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--size", default="full")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs-frameworks"))
    parser.add_argument("--print", action="store_true", dest="only_print")
    arguments = parser.parse_args()
    for part in arguments.parts.split(","):
        runs = arguments.runs_dir.absolute() / part
        shown(launch(part, arguments, runs), arguments.only_print)
        folders = ["RUNS"] if arguments.only_print else [str(folder) for folder in run_folders(runs)]
        reader = ["report", "--by", "env.framework,program"] if part == "timed" else ["diff", "--kernels"]
        shown([sys.executable, "-m", "tracking", *reader, *folders, "--from-folders", "--runs-dir", str(runs)],
              arguments.only_print)  # fmt: skip


def shown(command: list[str], only_print: bool) -> None:
    print("$", shlex.join(command), flush=True)
    if not only_print:
        subprocess.run(command, cwd=ROOT, env=environment(), check=False)


def run_folders(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.rglob(run_folder.RUN) if (path.parent / run_folder.CONFIG).exists())


def environment() -> dict[str, str]:
    """Environment variables: `python` is this one, and JAX takes only the GPU memory that it needs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def launch(part: str, arguments: argparse.Namespace, runs: Path) -> list[str]:
    """Command of a part's sweep over both frameworks."""
    epochs = arguments.epochs * (6 if part in ("cupti", "both") else 1)  # long enough for CUPTI's start
    options = f"--size {arguments.size} --batch-size {arguments.batch_size} --precision {arguments.precision}"
    options += f" --epochs {epochs}"
    script = f"{sys.executable} resnet50_{{stack}}.py {options}"
    by_cupti = ["profile=true", "profile.after_sec=60", "profile.seconds=3"]
    part_options = {
        "timed": ["program.command=" + ",".join(f"'{script} --compile {each}'" for each in ("true", "false"))],
        "own": [
            f"program.command={script} --trace {{run_dir}}/trace", "profile.file={run_dir}/trace/**/*.json.gz",
            "profile.trace_megabytes=2000",
        ],
        "cupti": [f"program.command={script}", *by_cupti],
        "both": [f"program.command={script} --trace {{run_dir}}/trace", *by_cupti],
    }[part]  # fmt: skip
    return [
        sys.executable, "launch.py", "--config-dir", "docs/examples/frameworks", "-m", "model=resnet50_frameworks",
        f"stack.name={arguments.frameworks}", f"gpus={arguments.gpus}", f"precision={arguments.precision}",
        f"runs_dir={runs}", "tracking.offline=true", *part_options,
    ]  # fmt: skip


if __name__ == "__main__":
    main()
