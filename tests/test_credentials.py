"""Secrets are planted wherever a user might have them, and then looked for in everything that was written anywhere."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from conf.schema import ConfigError
from conf.secrets import is_secret_name, known, redact
from tests.commands import ROOT, TINY, environment, launch
from tests.deploy.test_native import content
from tests.team_server import TeamServer
from tests.tracking.mlflow_server import answering
from tracking import run_folder
from tracking.journal import Journal
from tracking.mirror import Mirror

SECRET_VARIABLES = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "HF_TOKEN", "PGPASSWORD", "GITHUB_TOKEN",
    "OPENAI_API_KEY", "CUDA_LICENSE_KEY", "NCCL_AUTH_TOKEN", "MY_SERVICE_PWD", "TEAM_CREDENTIALS",
)  # fmt: skip
URL_VARIABLES = ("DATABASE_URL", "https_proxy", "TORCH_HUB_MIRROR", "PIP_INDEX_URL")


def secret() -> str:
    return f"S{secrets.token_hex(8)}/+x"  # with what URLs and JSON write in another way


@dataclass
class Planted:
    """A clone of this repository, a home folder and an environment, all full of secrets."""

    repository: Path
    environ: dict[str, str]
    values: dict[str, str]  # by where they are
    printed: list[str]

    def run(self, *words: str, **changed: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        environ = {**self.environ, **changed}
        done = subprocess.run(command, cwd=self.repository, env=environ, capture_output=True, text=True, timeout=240)
        self.printed += [done.stdout, done.stderr]
        return done

    def leaked(self, text: bytes) -> list[str]:
        """Where the secrets that stand in a text were planted."""
        return [where for where, value in self.values.items() if any(form in text for form in forms(value))]


def forms(value: str) -> set[bytes]:
    user = f"heidi:{value}"
    plain = {value, quote(value), quote(value, safe=""), json.dumps(value)[1:-1]}
    return {form.encode() for form in plain} | {base64.b64encode(text.encode()) for text in (value, user)}


@pytest.fixture(scope="module")
def planted(team_server: TeamServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    accounts = team_server.accounts
    password = secret()
    accounts.add_user("heidi", password)
    home = tmp_path_factory.mktemp("home")
    repository = home / "repository"
    shutil.copytree(ROOT, repository, ignore=lambda folder, names: unwanted(Path(folder), names))
    values = {name: secret() for name in (*SECRET_VARIABLES, *URL_VARIABLES, "git remote", "git diff", "dotenv")}
    values |= {"password": password, "credentials file": secret()}
    (home / ".mlflow").mkdir()
    stored = f"[mlflow]\nmlflow_tracking_username = heidi\nmlflow_tracking_password = {values['credentials file']}\n"
    (home / ".mlflow/credentials").write_text(stored)
    plant_in_git(repository, values)
    server = team_server.uri.replace("://", f"://heidi:{quote(password, safe='')}@")
    environ = environment(
        HOME=str(home), PYTHONPATH=str(repository), no_proxy="localhost", MLFLOW_TRACKING_URI=server,
        MLFLOW_TRACKING_SERVER_CERT_PATH=str(team_server.certificate), CUDA_VISIBLE_DEVICES="",
        **{name: values[name] for name in SECRET_VARIABLES},
        **{name: f"http://user:{quote(values[name], safe='')}@127.0.0.1:9/" for name in URL_VARIABLES},
    )  # fmt: skip
    yield Planted(repository, environ, values, [])
    accounts.remove_user("heidi")


def unwanted(folder: Path, names: list[str]) -> set[str]:
    """What git does not hold, or holds itself."""
    at_top = {".git", ".venv", "runs", "data", "mlruns", "mlartifacts", "mlflow.db"} if folder == ROOT else set()
    return {name for name in names if name in at_top or name == "__pycache__" or name.endswith("_cache")}


def plant_in_git(repository: Path, values: dict[str, str]) -> None:
    def git(*words: str) -> None:
        options = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *options, *words], cwd=repository, check=True, capture_output=True)

    modules, dotenv = repository / ".gitmodules", repository / "settings.env"
    modules.write_text('[submodule "data"]\n')
    dotenv.write_text("MODE=fast\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "all")
    git("remote", "add", "origin", f"https://x-access-token:{quote(values['git remote'], safe='')}@github.com/a/b")
    url = f"https://oauth2:{quote(values['git diff'], safe='')}@example.org/d"
    modules.write_text(f'[submodule "data"]\n\turl = {url}\n')
    dotenv.write_text(f"MODE=fast\nTEAM_API_KEY={values['dotenv']}\n")


@pytest.fixture(scope="module")
def run(planted: Planted) -> Path:
    """The folder of a run that prints all that it can find, and dies of an error that quotes two secrets."""
    done = planted.run("launch.py", *TINY, "model.hparams.fault=leak", "tracking.experiment=leaks")
    assert done.returncode == 1, done.stdout + done.stderr
    [folder] = run_folder.run_folders(planted.repository / "runs")
    return folder


@pytest.mark.service
def test_no_secret_is_written_printed_or_uploaded(planted: Planted, run: Path, team_server: TeamServer) -> None:
    # The run did what would give them away, and it all arrived.
    log = (run / run_folder.WORKER_LOG).read_text()
    for words in ("HF_TOKEN=***", "'PGPASSWORD': '***'", "http://***@127.0.0.1:9/", "mlflow_tracking_password = ***"):
        assert words in log
    assert "ConnectionError: http://***@127.0.0.1:9/ does not take ***" in log
    failure = json.loads((run / run_folder.RESULT).read_text())["failure"]
    assert "does not take ***" in failure["message"]
    assert "does not take ***" in failure["traceback"]
    git = json.loads((run / run_folder.FINGERPRINT).read_text())["git"]
    assert "oauth2" not in git["diff"]
    assert "+TEAM_API_KEY=***" in git["diff"]
    assert "MLflow UI: https://localhost" in planted.printed[0]
    assert Mirror(run).complete
    on_server = content(team_server)
    assert any(b"does not take ***" in file for file in on_server["artifacts"].values())
    assert any("does not take ***" in row for row in on_server["tracking.tags"])

    # Now all of it is searched, and so are the answers to what goes wrong.
    wrong = planted.environ["MLFLOW_TRACKING_URI"].replace("heidi", "nobody")
    (run / run_folder.MIRROR).unlink()
    synced = planted.run("-m", "tracking", "sync", str(run), MLFLOW_TRACKING_URI=wrong)
    assert synced.returncode == 1
    assert "Refused" in synced.stdout
    refused = planted.run("launch.py", *TINY, MLFLOW_TRACKING_URI=wrong)
    assert (refused.returncode, "password of nobody is wrong" in refused.stderr) == (2, True)
    synced = planted.run("-m", "tracking", "sync", str(run))
    assert synced.stdout.startswith("complete"), synced.stdout + synced.stderr
    for folder in (planted.repository / "runs", team_server.home / "logs", team_server.home / "artifacts"):
        for path in folder.rglob("*"):
            assert not path.is_file() or not planted.leaked(path.read_bytes()), path
    assert not planted.leaked(repr({**on_server, "artifacts": {}}).encode())
    for text in planted.printed:
        assert not planted.leaked(text.encode()), text


REFUSED = {
    "stack.env.HF_TOKEN=hf-secret-4711": "export HF_TOKEN in the environment instead",
    "+stack.env.http_proxy=http://me:secret-4711@proxy": "stack.env.http_proxy: holds a secret",
    "tracking.uri=https://me:secret-4711@localhost": "MLFLOW_TRACKING_PASSWORD",
    "tracking.uri=https://secret-4711@localhost": "MLFLOW_TRACKING_PASSWORD",
    "tracking.uri='postgresql://localhost/db?password=secret-4711'": "MLFLOW_TRACKING_PASSWORD",
    "dataset.path=s3://key:secret-4711@host/data": "dataset.path: holds a secret",
    "+model.hparams.api_key=secret-4711": "model.hparams.api_key: holds a secret",
    "instance.source=$WANDB_API_KEY": "instance.source: holds a secret",
}


def test_a_secret_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    from conf import checks, refusal
    from tests.composing import composed

    os.environ["WANDB_API_KEY"] = "secret-4711"
    try:
        for override, words in REFUSED.items():
            override = override.replace("$WANDB_API_KEY", "secret-4711")
            config = composed([f"+{override}" if override.startswith("stack.env") else override])
            with pytest.raises(ConfigError) as refused:
                checks.check(config, [])
            assert words in refusal.explain(refused.value)
            assert "secret-4711" not in str(refused.value)
    finally:
        del os.environ["WANDB_API_KEY"]
    for request in (["+stack.env.HF_TOKEN=hf-secret-4711"], ["tracking.uri=https://me:secret-4711@a b"]):
        answer = launch(tmp_path, *request)
        assert answer.code == 2
        assert "4711" not in answer.output
        assert not list(tmp_path.iterdir())


def test_nobody_is_asked_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from conf import checks
    from tests.composing import composed
    from tracking import job
    from tracking.launcher import Launcher
    from trainers.stack import worker_command

    monkeypatch.setattr(job, "raise_on_signals", lambda: None)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "nobody")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    with answering(401) as (uri, asked):
        for offline in (False, True):
            config = checks.check(composed([f"tracking.uri={uri}", f"tracking.offline={offline}"]), [])
            launcher = Launcher(config, [], worker_command, 0.0)
            if offline:
                launcher.check_server()
            else:
                with pytest.raises(ConfigError, match="the password of nobody is wrong"):
                    launcher.check_server()
            assert len(asked) == 1


def test_options_that_only_sound_like_secrets_pass() -> None:
    from conf import checks
    from tests.composing import composed

    harmless = [
        "+stack.env.TOKENIZERS_PARALLELISM=false",
        "+stack.env.NCCL_DEBUG=INFO",
        "tracking.uri=postgresql://me@host/db",
    ]
    checks.check(composed(harmless), [])
    assert not is_secret_name("TOKENIZERS_PARALLELISM")
    assert not is_secret_name("MONKEY")
    for text in (
        "pad_token: <|endoftext|>",
        "KeyError: 'some_long_name'",
        "ssh -i key host",
        "sqlite:////a@b/mlflow.db",
    ):
        assert redact(text, {}) == text


def test_words_numbers_and_paths_are_not_taken_for_secrets(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.touch()
    environ = {"HOME": "/", "API_KEY": "timetrial", "PIN_KEY": "123456", "SSH_AUTH_SOCK": str(path), "A_TOKEN": "ab1"}
    assert known(environ) == frozenset()
    assert known({"HOME": "/", "API_KEY": "timetrial7"}) == {"timetrial7"}


def test_a_private_key_is_hidden_line_by_line_and_as_a_whole() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----"
    assert "MIIE" not in redact(f"x {key} y", {})
    assert "MIIE" not in redact("MIIEvQIBADANBgkqhkiG9w0", {"DEPLOY_KEY": key})


def test_a_journal_keeps_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "Z1y2x3w4")
    log = Journal(tmp_path / "journal.jsonl")
    log.tags({"note": "with Z1y2x3w4"})
    log.params({"hparams/url": "https://me:Z1y2x3w4@host"})
    log.event("error", "Z1y2x3w4", where=["https://me:other@host"])
    log.close()
    text = (tmp_path / "journal.jsonl").read_text()
    assert "Z1y2x3w4" not in text
    assert "other" not in text
    assert text.count("***") == 4


def test_run_folders_are_private(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        folder = run_folder.create(tmp_path / "runs", "run")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    run_folder.write_text(folder / "a.txt", "a")
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        for parent in tmp_path.parents[:-2]:
            parent.chmod(0o755)
        seen = subprocess.run(["cat", folder / "a.txt"], user="nobody", extra_groups=[], capture_output=True)
        assert b"Permission denied" in seen.stderr
