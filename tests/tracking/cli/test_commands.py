"""What all commands share: help, exit codes, one JSON document, refusals in words, and readers that go away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.project.test_imports import TORCH, imported_by
from tests.support.commands import HANGS_SEC, ROOT, environment
from tests.support.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.cli import COMMANDS, parser
from tracking.cli.command_type import Command

HEAVY = TORCH | {"mlflow", "matplotlib", "scipy", "sklearn", "pandas"}
REFUSALS = [
    ["no-such-command"],
    ["cache"],
    ["cache", "--export", "a", "--import", "b"],
    ["diff"],
    ["doctor", "--runs_dir", "x"],
    ["fingerprint", "--yaml"],
    ["gate", "--baseline", "a", "--candidate", "b", "--max-slowdown", "3"],
    ["mlperf"],
    ["report", "--by"],
    ["sync", "--never"],
]


def test_a_script_in_a_commands_place_gets_the_line_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser.execute(["train.py"], "timetrial", [("run", "")]) == 2
    assert "model=program 'program.command=python train.py'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, step_sec in (("base", 0.1), ("slow", 0.2)):
        sweep = make_sweep(root, name, "sqlite:///none.db", 3)
        for seed in (1, 2, 3):
            make_run(sweep, config(seed=seed), "sqlite:///none.db", step_sec + seed / 1000)
    return root


class CommandLine:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self._capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = int(str(ended.code))
        return code, *self._capsys.readouterr()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run in a bash that has this Python as `python`, and fails where any part of a pipe does."""
    environ = environment() | {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    line = f"set -o pipefail; {command}"
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=environ, capture_output=True, text=True, timeout=HANGS_SEC, check=False
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_is_the_same_everywhere(command: Command, ask: CommandLine) -> None:
    code, output, errors = ask(command.name, "--help")
    assert (code, errors) == (0, "")
    assert output.endswith(f"{parser.EXIT_CODES}\n")
    assert "--json" in output
    assert " ".join(command.summary.split()) in " ".join(output.split())
    assert command.name in ask("--help")[1]
    assert "JSON: " in (sys.modules[command.run.__module__].__doc__ or "")


NEEDED = {"diff": ["a"], "follow": ["folder"], "import": ["log"], "mlperf": ["a"], "report": ["a"], "sync": ["folder"]}
NEEDED["audit"] = ["folder"]
NEEDED["cache"] = ["--export=a"]
NEEDED["gate"] = ["--baseline=a", "--candidate=b", "--max-slowdown=3%"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_what_a_command_does_not_know_is_answered_with_its_own_usage(command: Command, ask: CommandLine) -> None:
    usage = ask(command.name, "--help")[1].partition("\n\n")[0]
    code, output, errors = ask(command.name, *NEEDED.get(command.name, []), "--unheard-of")
    assert (code, output) == (2, "")
    refused = "refused: unrecognized arguments: --unheard-of"
    assert errors == f"{usage}\n{refused}. Next: python -m tracking {command.name} --help\n"


@pytest.mark.parametrize(
    "words", [["doctor", "extra"], ["follow", "folder", "extra"], ["report", "a", "--out", "b", "c"]]
)
def test_a_word_too_many_is_answered_with_the_commands_usage(words: list[str], ask: CommandLine) -> None:
    code, output, errors = ask(*words)
    assert (code, output) == (2, "")
    assert errors.startswith(f"usage: python -m tracking {words[0]} ")
    assert f"\nrefused: unrecognized arguments: {words[-1]}. Next: " in errors


def test_what_is_unknown_before_a_command_is_answered_with_the_usage_of_all(ask: CommandLine) -> None:
    code, _, errors = ask("--unheard-of", "doctor")
    assert (code, "usage: python -m tracking [-h]" in errors, "\nrefused: " in errors) == (2, True, True)


@pytest.mark.parametrize("words", REFUSALS, ids=" ".join)
@pytest.mark.slow
def test_what_is_wrong_in_a_request_is_told_at_once(words: list[str]) -> None:
    """Without what takes seconds to import."""
    code, packages = imported_by(["-m", "tracking", *words], ROOT)
    assert code == 2
    assert "argparse" in packages
    assert not packages & HEAVY


@pytest.mark.parametrize("words", [[], *([command.name] for command in COMMANDS)], ids=" ".join)
@pytest.mark.slow
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code, packages = imported_by(["-m", "tracking", *words, "--help"], ROOT)
    assert code == 0
    assert not packages & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        ["cache", "--import", "nowhere", "--json"],
        ["cache", "--export", "file", "--trust", "--json"],
        ["diff", "nowhere", "--from-folders", "--json"],
        ["diff", "any", "--from-folders", "--runs-dir", "nowhere"],
        ["doctor", "--config-dir", "nowhere"],
        ["follow", "nowhere"],
        ["gate", "--baseline=a", "--candidate=b", "--max-slowdown=3%", "--from-folders", "--json"],
        ["gate", "--baseline=a", "--candidate=b", "--max-slowdown=3%", "--confidence=7", "--json"],
        ["import", "nowhere"],
        ["report", "--json"],
        ["report", "nowhere", "--from-folders"],
        ["report", "--reference-only", "nothing", "--json"],
        ["stacks", "--config-dir", "nowhere"],
        ["sync", "nowhere", "--json"],
    ],
    ids=" ".join,
)
def test_a_refusal_is_a_sentence_on_standard_error(
    words: list[str], ask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, errors = ask(*words)
    assert (code, output) == (2, "")
    assert errors.startswith("refused: ")
    assert errors.count("\n") == 1
    assert {"nowhere", "any"}.isdisjoint(words) or "nowhere" in errors


def test_a_bug_of_ours_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Any) -> Any:
        raise KeyError("ours")

    broken = Command("broken", "fails", lambda parser: None, run)
    monkeypatch.setattr(parser, "COMMANDS", (broken,))
    with pytest.raises(KeyError, match="ours"):
        main(["broken"])


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    """The one document on standard output, in JSON that knows no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(answer[1], parse_constant=refuse)


def test_diff_as_json(ask: CommandLine, runs: Path) -> None:
    answer = ask("diff", *first_of_each(runs), *of(runs), "--json")
    content = document(answer)
    assert answer[0] == 0
    assert [run["name"] for run in content["runs"]] == ["vgg-digits-fp32-1gpu-seed1"] * 2
    groups = {group["name"]: {row["key"]: row for row in group["rows"]} for group in content["groups"]}
    assert groups["configuration"] == {}
    rate = groups["results"]["throughput/samples_per_sec"]
    assert rate["change"] == pytest.approx(rate["values"][1] / rate["values"][0] - 1)
    assert rate["change"] < -0.4
    assert any("fingerprint.json" in note for note in content["notes"])


def first_of_each(runs: Path) -> list[str]:
    return [str(min((runs / sweep).glob("vgg-*"))) for sweep in ("base", "slow")]


def of(runs: Path) -> list[str]:
    return ["--from-folders", "--runs-dir", str(runs)]


@pytest.mark.parametrize(("margin", "code"), [("3%", 1), ("99%", 2)])
def test_gate_as_json(ask: CommandLine, runs: Path, margin: str, code: int) -> None:
    answer = ask(
        "gate",
        "--baseline=base",
        "--candidate=slow",
        f"--max-slowdown={margin}",
        *of(runs),
        "--metric=time/epoch_sec",
        "--json",
    )
    content = document(answer)
    assert answer[0] == content["exit_code"] == code
    assert content["sentence"].startswith("time/epoch_sec: " + ("slower" if code == 1 else "cannot tell"))
    assert len(content["baseline"]["values"]) == content["candidate"]["num_finished"] == 3
    slowdown = content["slowdown"]
    assert slowdown["low"] < slowdown["observed"] < slowdown["high"]
    assert slowdown["observed"] > 0.3


def test_a_gate_that_passes_as_json(ask: CommandLine, runs: Path) -> None:
    sides = ("--baseline=slow", "--candidate=base")
    answer = ask("gate", *sides, "--max-slowdown=3%", *of(runs), "--metric=time/epoch_sec", "--json")
    content = document(answer)
    assert answer[0] == content["exit_code"] == 0, content["sentence"]
    assert content["slowdown"]["high"] < 0.03


def test_mlperf_as_json(ask: CommandLine, runs: Path, tmp_path: Path) -> None:
    code, _, words = ask("mlperf", "base", *of(runs))
    assert (code, "no run with a mlperf.log found" in words) == (2, True)
    assert "transformer or gnmt" in words  # which leave one, too
    copied = shutil.copytree(runs / "base", tmp_path / "base")
    for number, folder in enumerate(sorted(copied.glob("vgg-*"))[:2]):
        times = {"submission_benchmark": 0, "run_start": 1000, "run_stop": 3000 + number}
        lines = [
            {"key": key, "time_ms": time_ms, "value": "ssd", "metadata": {"status": "success"}}
            for key, time_ms in times.items()
        ]
        (folder / "mlperf.log").write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    answer = ask("mlperf", "base", *of(tmp_path), "--json")
    content = document(answer)
    (score,) = content["scores"]
    assert (answer[0], score["seconds"], score["num_missing"]) == (1, None, 3)
    assert [run["seconds"] for run in score["runs"]] == [2, 2.001]
    assert len(content["without_log"]) == 1
    assert "ssd: 3 of 5 runs are missing" in ask("mlperf", "base", *of(tmp_path))[1]


def test_report_as_json(ask: CommandLine, runs: Path, tmp_path: Path) -> None:
    answer = ask("report", "base", "slow", *of(runs), "--out", str(tmp_path), "--check", "--json")
    content = document(answer)
    assert answer[0] == 0, answer[2]
    assert content["report"] == json.loads((tmp_path / "report.json").read_text())
    assert all(Path(file).is_file() for file in content["written"])
    assert content["check"]["num_runs"] == 6
    assert content["check"]["differences"] == []
    assert "recomputed" in answer[2]
    tables = document(ask("report", "--reference-only", "dgx1", "--json"))["tables"]
    assert all(len(row) == len(table["columns"]) for table in tables for row in table["rows"])


def test_sync_and_doctor_as_json(ask: CommandLine, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{}")
    answer = ask("sync", str(tmp_path / "broken"), "--json")
    (outcome,) = document(answer)["outcomes"]
    assert (answer[0], outcome["state"], outcome["folder"]) == (1, "failed", str(tmp_path / "broken"))
    assert "failed: " in answer[2]  # progress is told beside it
    monkeypatch.setattr("tracking.jobs.doctor.examination.gpus", lambda run: iter(()))
    database = f"sqlite:///{tmp_path / 'none.db'}"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without uv, which would ask the registry about each stack
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/mine.yaml").write_text("kind: python\npython: /no/such/python\n")
    own = ("--dataset-path", str(tmp_path / "missing"), "--config-dir", str(tmp_path))
    answer = ask("doctor", "--tracking-uri", database, *own, "--json")
    content = document(answer)
    stacks = {row["stack"]: row for row in content["stacks"]}
    assert {"native", "torch2_6", "mine"} <= stacks.keys()
    assert (stacks["native"]["error"], "no such file" in stacks["mine"]["error"]) == ("", True)
    assert (answer[0], content["ok"]) == (1, False)
    assert {finding["what"]: finding["ok"] for finding in content["findings"]}["dataset"] is False


def test_fingerprint_as_json_is_what_a_run_keeps(ask: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"software": {"driver": "580.1"}, "gpus": [], "temperature": float("nan")}

    class Collector:
        def finish(self, torch: Any) -> dict[str, Any]:
            return kept

    monkeypatch.setattr("tracking.machine.environment.Collector", Collector)
    assert document(ask("fingerprint", "--json")) == kept | {"temperature": None}


@pytest.mark.parametrize("words", ["--help", "report --help", "report --reference-only dgx1", "gate {gate}"])
@pytest.mark.slow
def test_a_reader_that_goes_away_changes_nothing(words: str, runs: Path, tmp_path: Path) -> None:
    """`| head -0` closes the pipe before anything is written to it; the exit code is the command's own."""
    gate = (
        f"--baseline base --candidate slow --max-slowdown 3% --metric time/epoch_sec --from-folders --runs-dir {runs}"
    )
    done = shell(f"python -m tracking {words.format(gate=gate)} | true", tmp_path)
    assert (done.returncode, done.stderr) == (int(words.startswith("gate")), "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux that is always full")
@pytest.mark.slow
def test_an_output_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    done = shell("python -m tracking report --reference-only dgx1 --json > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("refused: standard output: No space left on device. Next: ")


def completed(line: str, cwd: Path) -> set[str]:
    """What an interactive bash would offer at the end of the line, by the function that the script registers."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <(python -m tracking --print-completion bash)
        function_name=$(complete -p tracking | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
        $function_name tracking '{words[-1]}' '{words[-2]}' 2> /dev/null
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = shell(script, cwd)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "some-runs").mkdir()
    assert completed("tracking ", tmp_path) >= {command.name for command in COMMANDS}
    assert completed("tracking d", tmp_path) == {"diff", "doctor"}
    assert completed("tracking gate --ma", tmp_path) == {"--max-slowdown", "--markdown"}
    assert completed("tracking sync --j", tmp_path) == {"--json"}
    assert completed("tracking sync so", tmp_path) == {"some-runs"}
    assert completed("tracking diff --runs-dir so", tmp_path) == {"some-runs"}


@pytest.mark.slow
def test_the_completed_command_is_this_program_from_any_folder(tmp_path: Path) -> None:
    done = shell("source <(python -m tracking --print-completion bash); unset PYTHONPATH; tracking sync x", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "refused: x: no run found. Next: give your runs_dir\n"


@pytest.mark.parametrize("name", ["bash", "zsh", "tcsh", "fish"])
def test_every_shell_has_a_script_with_every_command(name: str, ask: CommandLine) -> None:
    code, output, _ = ask("--print-completion", name)
    assert code == 0
    assert all(command.name in output for command in COMMANDS)
    assert "-m tracking" in output


def test_ctrl_c_ends_a_command_with_a_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*words: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(parser, "execute", stop)
    assert parser.main(["sync"]) == 1
    assert capsys.readouterr().err == "stopped\n"
