"""A container engine that contains nothing: a program on the PATH that notes what it is asked, and answers as told."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = """#!{python} -I
import json, os, pathlib, sys
here, words = pathlib.Path(__file__).resolve().parent, sys.argv[1:]
told = json.loads((here / "told.json").read_text())
with (here / "asked").open("a") as file:
    file.write(json.dumps([os.path.basename(__file__), *words]) + "\\n")
def end(code, text="", error=""):
    print(text) if text else None
    print(error, file=sys.stderr) if error else None
    sys.exit(code)
if words[0] == "version":
    end(told.get("version", 0), "9.9.9", "Cannot connect to the daemon")
if words[:2] == ["image", "inspect"]:
    end(0, json.dumps([told["image"]])) if told["image"] else end(125, "[]", "Error: image not known")
if words[0] == "manifest":
    end(told.get("reach", 0), "{{}}", "connection refused")
if words[0] == "info":
    end(0, told.get("room", "/"))
if words[0] == "pull":
    if told.get("pull"):
        (here / "told.json").write_text(json.dumps(told | {{"image": told["pull"]}}))
        end(0)
    end(125, "", "manifest unknown")
if words[0] == "rm":
    end(0)
assert words[0] == "run", words
probe = any(word.startswith("timetrial-probe-") for word in words)
if probe and told.get("answer"):
    end(0, json.dumps(told["answer"]))
if code := told.get("probe" if probe else "run"):
    end(code, "", told.get("words", "the fake cannot"))
for word in words:
    if word.startswith("--fail=") and not probe:
        if "--gone" in words:
            (here / "told.json").write_text(json.dumps(told | {{"image": None}}))
        end(int(word[7:]), "", "the fake fails as asked")
at = words.index("--entrypoint")
given = [pair for flag, pair in zip(words, words[1:]) if flag == "--env"]
os.execve(words[at + 1], [words[at + 1], *words[at + 3:]], dict(pair.split("=", 1) for pair in given))
"""
IMAGE = {"Id": "1" * 64, "Digest": "sha256:" + "d" * 64, "RepoDigests": [], "Architecture": "amd64", "Size": 5 * 10**9}
ANSWER = {
    "python": "3.11.7",
    "machine": "x86_64",
    "cuda": "12.4",
    "packages": {"torch": "2.6.0", "pytorch-lightning": "2.6.0", "numpy": "2.0", "PyYAML": "6.0"},
}


@dataclass
class FakeEngine:
    """`told`: image (an inspection, or None), answer (of the Python in it), reach, probe, run (exit codes), pull, room.

    Without an answer or an exit code, `run` runs the command here, with the variables that the container is given. An
    option --fail=CODE has it fail after the probe, and --gone removes the image then.
    """

    folder: Path
    told: dict[str, Any] = field(default_factory=lambda: {"image": IMAGE, "answer": ANSWER})

    def install(self, *names: str) -> FakeEngine:
        self.folder.mkdir(exist_ok=True)
        for name in names:
            (self.folder / name).write_text(PROGRAM.format(python=sys.executable))
            (self.folder / name).chmod(0o755)
        return self.tell()

    def tell(self, **told: Any) -> FakeEngine:
        self.told |= told
        (self.folder / "told.json").write_text(json.dumps(self.told))
        return self

    @property
    def path(self) -> str:
        """The PATH on which it comes first."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    @property
    def asked(self) -> list[list[str]]:
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
