"""Folders of strangers, damaged ones, links and copies beside good ones, and a file outside that is to stay alone."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.chaos import count
from tests.chaos.case import Case, Kind
from tests.support.damage import DAMAGE
from tracking.record import run_folder

CANARY = "the-canary-outside-of-every-run"
# Each link leads outside. One in the place of a file that must be read or written makes a folder a bad one.
LINKS = (
    ".mirror.lock",
    "result.json",
    "run.json",
    "journal.jsonl",
    "mirror.json",
    "config.yaml",
    "id_rsa",
    "worker.log",
)
HARMLESS_LINKS = ("id_rsa", "worker.log", "config.yaml")


def play(case: Case) -> None:
    """Good folders go up exactly, bad ones are named, and nothing outside is read or written."""
    launcher = case.quick({"then": "finish", "rows": 30}, {"then": "fail", "rows": 5}, WAIT_SEC="0")
    case.proxy.fault = case.rng.choice((None, "refuse"))  # uploaded before, or not
    launcher.end()
    good = count.folders(case.cwd)
    canary = case.cwd / "outside" / "canary"
    canary.parent.mkdir()
    canary.write_text(CANARY)
    before = canary.stat()
    good, bad = BEDLAM[case.variant](case, good, canary)
    case.tell(f"{len(good)} good folders, {len(bad)} bad ones")
    case.proxy.fault = None
    sync = case.start_sync()
    code = sync.end()
    lines = sync.output.splitlines()
    case.require(code == bool(bad), f"sync ended with {code}: {sync.output[-3000:]}")
    case.require("Traceback" not in sync.output, sync.output[-3000:])
    for folder in bad:
        named = [line for line in lines if line.startswith(("failed: ", "running: ")) and str(folder.name) in line]
        case.require(named, f"{folder.name} is not named: {sync.output[-3000:]}")
    case.compare(folders=good, alone=False)
    after = canary.stat()
    same = (before.st_mtime_ns, before.st_size, before.st_ino) == (after.st_mtime_ns, after.st_size, after.st_ino)
    case.require(canary.read_text() == CANARY and same, "the canary was written to")
    case.require(sorted(canary.parent.iterdir()) == [canary], f"new files outside: {list(canary.parent.iterdir())}")
    case.require(not told(case), f"the canary was read: it is in {told(case)}")


def told(case: Case) -> list[str]:
    """Files of the server that hold the canary's words."""
    places = [*case.server.folder.glob("mlflow.db*"), *(case.server.folder / "served").rglob("*")]
    return [str(path) for path in places if path.is_file() and CANARY.encode() in path.read_bytes()]


def another(folder: Path, name: str, **fields: object) -> Path:
    """A copy under another name, as a run of its own."""
    copy = folder.parent / name
    shutil.copytree(folder, copy, symlinks=True)
    path = copy / run_folder.RUN
    path.write_text(json.dumps(json.loads(path.read_text()) | {"uid": uuid.uuid4().hex} | fields))
    (copy / run_folder.MIRROR).unlink(missing_ok=True)
    return copy


Bedlam = tuple[list[Path], list[Path]]  # the good folders and the bad ones


def damaged(case: Case, good: list[Path], _: Path) -> Bedlam:
    bad = []
    for number, name in enumerate(case.rng.sample(sorted(DAMAGE), 5)):
        bad.append(another(good[1], f"damaged{number}"))
        DAMAGE[name](bad[-1])
        case.tell(f"damaged{number}: {name}")
    return good, bad


def mixed_up(case: Case, good: list[Path], _: Path) -> Bedlam:
    """Bytes of a JSON file are changed, cut off, or put in by chance; what then still reads as before is good."""
    bad = []
    for number in range(6):
        folder = another(good[1], f"mixed{number}")
        path = folder / case.rng.choice((run_folder.RUN, run_folder.RESULT))
        content = path.read_bytes()
        at = case.rng.randrange(1, len(content) - 2)
        way = case.rng.choice(("cut", "zeros"))
        path.write_bytes(content[:at] + (b"\0" * (len(content) - at) if way == "zeros" else b""))
        case.tell(f"mixed{number}: {path.name} {way} at {at}")
        bad.append(folder)
    return good, bad


def torn_journals(case: Case, good: list[Path], _: Path) -> Bedlam:
    """Cut at any byte, with lines of strangers, with zeros as a power cut leaves them: what is whole goes up."""
    torn = []
    strange = (b"\0" * 512, b"not json\n", b'{"kind": "odd"}\n', b'{"kind": "metrics", "t', b"[" * 4000 + b"\n")
    for number in range(5):
        folder = another(good[1], f"torn{number}")
        path = folder / run_folder.JOURNAL
        lines = path.read_bytes().splitlines(keepends=True)
        at = case.rng.randrange(len(lines))
        odd = case.rng.choice((*strange, lines[at][: case.rng.randrange(1, len(lines[at]))]))
        path.write_bytes(b"".join([*lines[:at], odd, *lines[at:]]))
        torn.append(folder)
    return [*good, *torn], []


def links(case: Case, good: list[Path], canary: Path) -> Bedlam:
    bedlam: Bedlam = ([*good], [])
    for number, name in enumerate(case.rng.sample(LINKS, 5)):
        folder = another(good[1], f"linked{number}")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(canary)
        if name != run_folder.RUN:  # without it, the folder is not a run folder
            bedlam[name not in HARMLESS_LINKS].append(folder)
        case.tell(f"linked{number}: {name}")
    (good[0].parent / "link").symlink_to(canary.parent)
    return bedlam


def cycles(case: Case, good: list[Path], _: Path) -> Bedlam:
    """Parents of parents, and folders that lie in themselves by a link."""
    sweep, job = good[0], good[1]
    inner = another(job, "inner")
    shutil.move(inner, job / "inner")  # a job of a job
    (job / "inner" / "round").symlink_to(sweep)
    bad = [another(job, "own-parent", parent="."), another(job, "elsewhere", parent="../..")]
    return [*good, job / "inner"], bad


def copies(case: Case, good: list[Path], _: Path) -> Bedlam:
    """A copied sweep and a copied job are the same runs."""
    shutil.copytree(good[0], good[0].parent / "copied", symlinks=True)
    shutil.copytree(good[1], good[0].parent / "alone", symlinks=True)
    kept = case.rng.random() < 0.5
    for folder in (good[0].parent / "copied").rglob(run_folder.MIRROR) if not kept else ():
        folder.unlink()
    return [folder for folder in count.folders(case.cwd) if folder.name != "alone"], []


def odd_values(case: Case, good: list[Path], _: Path) -> Bedlam:
    """Huge integers and values of other kinds in a journal are left there; the rest of it goes up."""
    odd = another(good[1], "odd")
    line = {"kind": "metrics", "time_ms": 1, "clock_sec": 1.0, "step": 1}
    with (odd / run_folder.JOURNAL).open("a") as file:
        for values in ({"huge": 10**400}, {"text": "1"}, {"none": None}, {"a(b": 1.0}, None, [1]):
            file.write(json.dumps(line | {"values": values}) + "\n")
        file.write(json.dumps(line | {"values": {"late": 1.5}}) + "\n")
    case.proxy.fault = None
    sync = case.start_sync(str(odd))
    sync.end()
    case.require(re.search(f"^complete: {odd}", sync.output, re.M), sync.output[-3000:])
    run_id = json.loads((odd / run_folder.MIRROR).read_text())["run_id"]
    there = {key for key, *_ in count.stored_rows(case.server, run_id)}
    case.require("late" in there and not there & {"huge", "text", "none", "a(b"}, f"MLflow has {there}")
    return good, []


BEDLAM: dict[str, Callable[[Case, list[Path], Path], Bedlam]] = {
    "damaged": damaged, "mixed up": mixed_up, "torn journals": torn_journals, "links": links, "cycles": cycles,
    "copies": copies, "odd values": odd_values,
}  # fmt: skip
FOREIGN = Kind("foreign folders", list(BEDLAM), play)
