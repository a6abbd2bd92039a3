"""What the program says of itself, where it runs, and readers of it that go away."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import HydraException
from omegaconf import DictConfig

import launch
from tests.support.commands import HANGS_SEC, ROOT, environment
from tests.support.composing import composed
from tracking.__main__ import main
from tracking.base import installation, paths
from tracking.request import refusal

VERSION = f"timetrial {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}\n"


def test_both_programs_say_their_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["launch.py", "--version"])
    assert launch.main() == 0
    assert capsys.readouterr().out == VERSION
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == VERSION


def test_each_job_of_a_sweep_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, load = [], ConfigLoaderImpl.load_sweep_config

    # Hydra's own check before a sweep composes by keywords, its run of a job does not.
    def counted(loader: ConfigLoaderImpl, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        jobs.append(sweep_overrides)
        return load(loader, master_config, sweep_overrides)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    seeds: list[list[int]] = []
    monkeypatch.setattr(launch, "ahead", lambda words: nullcontext())
    monkeypatch.setattr(
        launch, "launch", lambda request, waiting: seeds.append([job[0].seed for job in request.jobs]) or 0
    )
    monkeypatch.setattr(sys, "argv", ["launch.py", "-m", "seed=1,2"])
    assert [launch.main(), launch.main()] == [0, 0]
    assert seeds == [[1, 2], [1, 2]], "a second request in this process has jobs of its own"
    assert jobs == [["seed=1"], ["seed=2"]] * 2


def test_another_operating_system_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installation.wrong_system("linux") is None
    assert "WSL" in str(installation.wrong_system("win32"))
    words = str(installation.wrong_system("darwin"))
    assert "this is macOS, and timetrial needs Linux" in words
    monkeypatch.setattr(installation, "wrong_system", lambda: words)
    assert launch.main() == 2
    assert capsys.readouterr().err == f"refused: {words}\n"


def test_a_removed_current_folder_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert paths.missing_folder() is None
    (folder := tmp_path / "removed").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    for command in (launch.main, lambda: main(["report", "x"])):
        assert command() == 2
        assert capsys.readouterr().err.startswith("refused: the current folder was removed")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "package"), [("launch.py", "hydra"), ("python -m tracking", "rich")])
def test_a_python_outside_of_the_environment_is_refused_in_words(command: str, package: str) -> None:
    words = [sys.executable, "-S", *command.removeprefix("python ").split()]  # -S: without site-packages
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC)
    said = f"refused: this Python has no {package}. Next: uv run {command}, or source .venv/bin/activate\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_missing_module_of_ours_is_a_fault_and_no_matter_of_the_environment() -> None:
    with pytest.raises(ModuleNotFoundError):
        installation.refuse_python(ModuleNotFoundError(name="tracking.nothing"), "launch.py")


def test_the_version_is_that_of_the_newest_release_in_the_changelog_and_of_the_citation() -> None:
    changelog, citation = (ROOT / "CHANGELOG.md").read_text(), yaml.safe_load((ROOT / "CITATION.cff").read_text())
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", changelog, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert headings[1] == (installation.version(), citation["date-released"])
    assert citation["version"] == installation.version()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) and re.fullmatch(r"\d{4}-\d\d-\d\d", date)
               for version, date in headings[1:])  # fmt: skip


def test_the_readme_says_the_operating_system_at_its_start() -> None:
    assert "Linux" in (ROOT / "README.md").read_text().partition("\n## ")[0]


MODELS = ", ".join(sorted(path.stem for path in (ROOT / "conf/model").glob("*.yaml")))


@pytest.mark.parametrize(("override", "meant"), [
    ("model=vg", f"did you mean vgg? Allowed: {MODELS}."),
    ("dataset=digit", "did you mean digits?"),
    ("precision=xyz", "no such choice. Allowed: bf16, fp16, fp32, fp8, tf32."),
    ("+study=scalig", "did you mean scaling?"),
])  # fmt: skip
def test_a_choice_that_is_not_there_is_told_with_the_nearest(override: str, meant: str) -> None:
    with pytest.raises(HydraException) as raised:
        composed([override])
    words = refusal.explain(raised.value)
    assert words.startswith(f"refused: {override.removeprefix('+')}: no such choice")
    assert meant in words


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--help", "--cfg job", "--version"])
def test_a_reader_that_goes_away_is_no_error(flag: str, tmp_path: Path) -> None:
    line = f"set -o pipefail; {sys.executable} {ROOT / 'launch.py'} {flag} | true"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC
    )
    assert (done.returncode, done.stderr) == (0, "")
