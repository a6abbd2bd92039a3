"""Six trainings that are slow on purpose: the true reason, our diagnosis, and that of traceml-ai.

    python benchmarks/steps/slow_on_purpose.py                              # only ours
    python benchmarks/steps/slow_on_purpose.py --peer VENV/bin/traceml      # and traceml-ai's; it needs torch there

Two processes train: on two GPUs if available, otherwise on two cores, each pinned to one. Prints a Markdown table. The
true figure is the share of time that the slow rank was slow on purpose, as timed by itself. Both tools run the same
loop: ours runs all cases in one process group, traceml-ai one case in each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("slow_trainings.py")
CASES = ("loader", "work", "gc", "tiny", "co-tenant", "evaluations")
WORDS = {
    "loader": "rank 1's loader sleeps",
    "work": "rank 1 computes forward and backward three times",
    "gc": "rank 1 collects garbage every fifth step",
    "tiny": "batches of 2 samples",
    "co-tenant": "others compute on rank 1's GPU or core",
    "evaluations": "an evaluation every tenth of an epoch",
}


def train(arguments: argparse.Namespace, folder: Path) -> None:
    """Train all cases with our tool."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={arguments.processes}"]
    options = ["--runs", str(folder), "--steps", str(arguments.steps), *sizes(arguments), "--cases", *arguments.cases]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    log = (folder / "ours.log").open("w")
    subprocess.run([*command, str(SCRIPT), *options], env=environ, stdout=log, stderr=log, check=True, timeout=900)


def sizes(arguments: argparse.Namespace) -> list[str]:
    sharded = ["--sharded"] if arguments.sharded else []
    return ["--batch", str(arguments.batch), "--width", str(arguments.width), *sharded]


def of_peer(arguments: argparse.Namespace, folder: Path, case: str) -> str:
    """traceml-ai's verdict, reason and advice on one case."""
    command = [arguments.peer, "run", "--nproc-per-node", str(arguments.processes), "--logs-dir", str(folder / "peer")]
    options = ["--tool", "traceml", "--runs", str(folder), "--steps", str(arguments.steps), *sizes(arguments)]
    with (folder / f"peer-{case}.log").open("w") as log:
        whole = [*command, "--run-name", case, str(SCRIPT), "--args", *options, "--cases", case]
        subprocess.run(whole, stdout=log, stderr=log, check=False, timeout=300)
    lines = [line.strip("| ").strip() for line in (folder / f"peer-{case}.log").read_text().splitlines()]
    verdict = [line for line in lines if line.startswith(("Verdict:", "Why:", "Next:"))]
    return "; ".join(line.partition(":")[2].strip() for line in verdict) or "nothing"


def result_of(folder: Path, case: str) -> dict[str, Any]:
    """Result of our run of a case, or an empty one. The companion writes it after the script has ended."""
    for path in sorted(folder.glob(f"*-{case}-*/result.json")):
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result
    return {}


def ours(result: dict[str, Any]) -> str:
    limits = result.get("bottleneck", {})
    slow = limits.get("slow_rank", {}).get("words", "")
    words = [limits.get("words", "nothing"), slow, f"try {limits.get('next', '')}"]
    return "; ".join(filter(None, words))


def truth(folder: Path, case: str, tool: str = "ours") -> str:
    """The case in words, with the share of time that the slow rank was slow on purpose if it was timed."""
    shares = []
    for path in folder.glob(f"true-{tool}-{case}-*.json"):
        timed = json.loads(path.read_text(encoding="ascii"))
        shares.append(timed["on_purpose_sec"] / timed["trained_sec"])
    most = max(shares, default=0.0)
    return f"{WORDS[case]}, {most:.0%} of its time".replace("%", " %") if most else WORDS[case]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sharded", action="store_true", help="shard the network by fully_shard; default: DDP")
    parser.add_argument("--peer", default="", help="path of the command traceml, in an environment with torch")
    parser.add_argument("--folder", type=Path, help="folder for runs and logs; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        train(arguments, folder)
        theirs = {case: of_peer(arguments, folder, case) if arguments.peer else "" for case in arguments.cases}
        print("| true | ours | traceml-ai |\n|---|---|---|")
        for case in arguments.cases:
            print(f"| {truth(folder, case)} | {ours(result_of(folder, case))} | {theirs[case]} |")


if __name__ == "__main__":
    main()
