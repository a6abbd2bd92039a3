"""timetrial from its wheel, for one who has packages named `conf` and `tracking`; and its names in a clone."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hatch_build
import timetrial
from tests.support.commands import HANGS_SEC, ROOT, environment
from timetrial import entry_point
from tracking.base import installation
from tracking.cli import COMMANDS
from tracking.record import run_folder

EXAMPLE = ROOT / "docs" / "examples" / "own_workload"
THEIRS = "import conf, tracking, timetrial\nassert conf.WHOSE == tracking.WHOSE == 'the user'\n"


@dataclass
class Installed:
    """An environment with the wheel, and the folder of somebody who uses it."""

    wheel: Path
    binaries: Path
    user: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the user's folder, where Python finds the user's packages first."""
        path = f"{self.binaries}:{environment()['PATH']}"
        environ = {**environment(**variables), "PATH": path, "PYTHONPATH": str(self.user)}
        return subprocess.run(
            command, cwd=self.user, env=environ, capture_output=True, text=True, timeout=HANGS_SEC, check=False
        )


def finished(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=HANGS_SEC, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Made without a network: of what this environment holds, which the new one sees as well."""
    if shutil.which("uv") is None:
        pytest.skip("needs uv on the PATH")
    folder = tmp_path_factory.mktemp("installed")
    options = ("--wheel", "--no-build-isolation", "--offline", "--python", sys.executable, "--out-dir", folder)
    finished("uv", "build", *options, ROOT)
    [wheel] = folder.glob("*.whl")
    binaries, user = folder / "environment" / "bin", folder / "user"
    finished("uv", "venv", "--python", sys.executable, binaries.parent)
    finished("uv", "pip", "install", "--no-deps", "--offline", "--python", binaries / "python", wheel)
    [site_packages] = binaries.parent.glob("lib/python*/site-packages")
    (site_packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    shutil.copytree(EXAMPLE, user)
    for name in ("conf", "tracking"):
        (user / name).mkdir(exist_ok=True)
        (user / name / "__init__.py").write_text("WHOSE = 'the user'\n")
    workload = user / "my_workload.py"
    workload.write_text(workload.read_text().replace("import torch\n", f"{THEIRS}import torch\n", 1))
    return Installed(wheel, binaries, user)


@pytest.mark.slow
def test_all_lies_under_one_name_and_the_wheel_is_in_order(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"timetrial", f"timetrial-{installation.version()}.dist-info"}
    ours = {path.name for path in (ROOT / "conf").rglob("*.yaml")} | {"page.html.jinja", "dgx1_scaling.csv", "LICENSE"}
    assert ours <= {name.split("/")[-1] for name in names}
    finished(sys.executable, "-m", "twine", "check", "--strict", installed.wheel)


# Exit code, output and errors of each command, as the script `timetrial` starts it, in one process.
ANSWERS = """
import contextlib, io, json, sys
from timetrial.entry_point import main
answers = []
for words in sys.argv[1:]:
    sys.argv = ["timetrial", *words.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    answers.append((code, out.getvalue(), errors.getvalue()))
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_the_command_has_every_name_and_says_what_to_type(installed: Installed) -> None:
    assert installed.run("timetrial", "--version").stdout == f"timetrial {installation.version()}\n"
    asked = ["--help", "report --help", "run --help", "run gpu=1", "sync none"]
    done = installed.run("python", "-c", ANSWERS, *asked)
    assert done.returncode == 0, done.stderr
    listed, report, run, refused, none = json.loads(done.stdout)
    assert all(f"\n    {name} " in listed[1] for name in ("run", *(command.name for command in COMMANDS)))
    assert "usage: timetrial report" in report[1]
    assert "timetrial run -m seed=1,2,3" in run[1]
    assert refused[0] == 2
    assert refused[2].endswith("Next: see timetrial run --help\n")
    assert none == [2, "", "refused: none: no run found. Next: give your runs_dir\n"]


@pytest.mark.slow
def test_it_trains_its_own_model_and_a_users_beside_packages_of_the_same_names(installed: Installed) -> None:
    models = ("--config-dir", "conf", "-m", "model=vgg,linear")
    done = installed.run("timetrial", "run", *models, "gpus=0", "max_epochs=1", "limit_train_batches=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (installed.user / "mlflow.db").exists()
    folders = [path.parent for path in (installed.user / "runs").rglob(run_folder.FINGERPRINT)]
    fingerprints = {folder: json.loads((folder / run_folder.FINGERPRINT).read_text()) for folder in folders}
    assert len(fingerprints) == 2
    for folder, facts in fingerprints.items():
        assert json.loads((folder / run_folder.RESULT).read_text())["status"] == "finished"
        assert facts["software"]["packages"]["timetrial"] == installation.version()
        # The code's commit: the user's folder and the environment may lie in repositories of their own.
        assert facts.get("git") == (hatch_build.commit(ROOT) or None)
    # Another command reads what is there, and has nothing to upload: all of it is in MLflow.
    synced = installed.run("timetrial", "sync", "runs", "--json")
    assert synced.returncode == 0, synced.stderr
    assert {outcome["state"] for outcome in json.loads(synced.stdout)["outcomes"]} == {"complete"}


LOOP = """
from timetrial import time_trial
with time_trial({"accuracy": 0.5}, offline=True, device="cpu", system_metrics_interval_sec=0) as trial:
    trial.step(8)
    trial.evaluate({"accuracy": 0.9}, epoch=1)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(
    "command",
    [
        ("python", "code/loop.py"),
        ("timetrial", "run", "model=program", "program.command=python loop.py", "program.cwd=code", "gpus=0"),
    ],
    ids=["a script", "a program"],
)
def test_a_run_has_the_commit_of_the_users_own_code(installed: Installed, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loop.py").write_text(LOOP)
    for words in ("init -q", "add .", "-c user.name=A -c user.email=a@example.org commit -qm first"):
        finished("git", "-C", tmp_path / "code", *words.split(" "))
    (tmp_path / "code" / "loop.py").write_text(LOOP + "# a change\n")
    done = dataclasses.replace(installed, user=tmp_path).run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    [written] = (tmp_path / "runs").glob(f"*/{run_folder.FINGERPRINT}")
    facts = json.loads(written.read_text())
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path / "code", capture_output=True, text=True).stdout
    assert facts["git"]["commit"] == head.strip()
    assert "+# a change" in facts["git"]["diff"]
    assert facts.get("timetrial") == (hatch_build.commit(ROOT) or None)


@pytest.mark.slow
def test_a_script_and_another_python_find_ours_alone(installed: Installed) -> None:
    code = f"{THEIRS}from timetrial import Workload\nfrom timetrial.trainers.workload import Workload as W\n"
    code += "from timetrial.tracking.base import installation\nassert W is Workload\nprint(installation.SEARCH_FOLDER)"
    done = installed.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    path = done.stdout.strip()
    # On the path of another Python, that folder leads to our package, and to nothing of what is installed beside it.
    assert [entry.name for entry in Path(path).iterdir() if entry.name != "__pycache__"] == ["timetrial"]
    code = "import timetrial.tracking.record as run; print(run.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment(PYTHONPATH=path), cwd=path, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()) == Path(path).parent / "tracking" / "record" / "__init__.py", done.stderr


MODELS = "gnmt gpt linear linear_top5 llama maskrcnn minigo ncf program resnet50 ssd transformer vgg"
COMPLETE = """
    source <(timetrial --print-completion bash)
    function_name=$(complete -p timetrial | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
    COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    $function_name timetrial "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}" 2> /dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("timetrial r", "run report"),
        ("timetrial gate --ma", "--max-slowdown --markdown"),
        ("timetrial run -m seed=1,2 precision=b", "bf16"),  # behind the `=`, at which bash cuts
        ("timetrial run --config-dir co", "conf"),
        ("timetrial run --config-dir conf model=", MODELS),
    ],
)
def test_bash_completes_commands_options_and_overrides(installed: Installed, line: str, offered: str) -> None:
    words = " ".join(f"'{word}'" for word in line.split(" "))
    done = installed.run("bash", "-c", COMPLETE.format(line=line, words=words))
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(offered.split())


@pytest.mark.slow
def test_no_source_of_the_wheel_imports_ours_from_elsewhere() -> None:
    sources = [path for part in (*hatch_build.PARTS, "timetrial") for path in (ROOT / part).rglob("*.py")]
    for path in [*sources, ROOT / "launch.py"]:
        written = hatch_build.installed(path.read_bytes(), path)
        assert len(written.splitlines()) == len(path.read_bytes().splitlines())  # Tracebacks fit both then.
        for node in ast.walk(ast.parse(written)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(hatch_build.is_ours(module) for module in modules), path


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("def f():\n    from conf import schema", "def f():\n    from timetrial.conf import schema"),
        ("from tracking.record import (\n  a,\n)", "from timetrial.tracking.record import (\n  a,\n)"),
        ("import launch; x = 'from conf import y'", "from timetrial import launch; x = 'from conf import y'"),
        ("import trainers.loop.train  # why", "import timetrial.trainers.loop.train  # why"),
        ("import trainers.loop as l\nl.f(trainers)", "import timetrial.trainers.loop as l\nl.f(trainers)"),
        ("import configparser\nfrom confused import x", "import configparser\nfrom confused import x"),
    ],
)
def test_imports_move_and_nothing_else_does(source: str, written: str) -> None:
    assert hatch_build.installed(source.encode(), Path("x.py")) == written.encode()


@pytest.mark.parametrize("source", ["import os, conf", "import tracking.record\ntracking.run.f()"])
def test_an_import_that_would_bind_another_name_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"^x.py:1: .*write `from X import Y`"):
        hatch_build.installed(source.encode(), Path("x.py"))


def test_an_editable_installation_is_refused_with_what_to_do_instead() -> None:
    hook: Any = object.__new__(hatch_build.OnePackage)
    with pytest.raises(RuntimeError, match=r"run launch\.py, or install a wheel"):
        hook.initialize("editable", {})


def test_in_a_clone_both_names_give_one_module() -> None:
    for name in ("conf.schema", "tracking.record", "trainers.workload"):
        assert importlib.import_module(f"timetrial.{name}") is importlib.import_module(name)
        spec = importlib.import_module(name).__spec__
        assert spec is not None
        assert spec.name == name
    assert timetrial.Workload is importlib.import_module("trainers.workload").Workload
    assert installation.SEARCH_FOLDER == ROOT
    with pytest.raises(AttributeError, match=r"It has: .*Workload"):
        timetrial.__getattr__("Worklaod")


def test_in_a_clone_the_command_is_pythons(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["timetrial", "run", "--version"])
    assert entry_point.main() == 0
    monkeypatch.setattr(sys, "argv", ["timetrial", "diff"])
    with pytest.raises(SystemExit, match="2"):
        entry_point.main()
    printed = capsys.readouterr()
    assert printed.out == f"timetrial {installation.version()}\n"
    assert "usage: python -m timetrial diff" in printed.err
