"""Secrets of all kinds are planted wherever a user might have them, and then looked for in everything that was written
anywhere: raw, and as JSON, Python, URLs, HTML and Basic authentication have them."""

from __future__ import annotations

import base64
import html
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import psutil
import pytest

from tests.deploy.test_native import content
from tests.support import forked
from tests.support.commands import HANGS_SEC, ROOT, TINY, environment
from tests.support.team_server import TeamServer
from tracking.record import run_folder
from tracking.store.mirror.mirror import Mirror

SECRET_VARIABLES = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "HF_TOKEN", "PGPASSWORD", "GITHUB_TOKEN",
    "OPENAI_API_KEY", "CUDA_LICENSE_KEY", "NCCL_AUTH_TOKEN", "MY_SERVICE_PWD", "TEAM_CREDENTIALS",
)  # fmt: skip
# Variables that hold a secret among other things; some of them by a name that does not say so.
COMPOSED = {
    "AZURE_STORAGE_CONNECTION_STRING": "Protocol=https;AccountName=team;AccountKey={};EndpointSuffix=a.b",
    "BLOB_SAS_URL": "https://team.blob.example.org/data?sv=2022-11-02&sp=r&sig={quoted}",
    "TRAIN_DATA": "https://bucket.s3.example.org/a.tar?X-Amz-Credential=a%2Fb&X-Amz-Signature={quoted}&X-Amz-Date=1",
    "ALERT_WEBHOOK": "https://chat.example.org/services/T0/{quoted}",
    "SENTRY_DSN": "https://{quoted}@sentry.example.org/1",
    "DATA_OPTIONS": "--endpoint https://example.org --token {}",
    "SERVICE": "host=example.org client_secret={} retries=3",
    "LOADER": "https://example.org/data?client_id=a&token={quoted}",
    "STORE_PASSWORD": """{}"é€ \\ <&>'x""",
}
TRACKING = "tracking/__main__.py"
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
    command_lines: set[str]  # those of all our processes, which every user of the machine can see

    def run(self, *words: str, **changed: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        deadline = time.monotonic() + HANGS_SEC
        with subprocess.Popen(command, cwd=self.repository, env={**self.environ, **changed}, **pipes) as process:
            while True:
                self.command_lines |= command_lines(process.pid)
                assert time.monotonic() < deadline
                with suppress(subprocess.TimeoutExpired):
                    output = process.communicate(timeout=0.3)
                    break
        self.printed += output
        return subprocess.CompletedProcess(command, process.returncode, *output)

    def told(self, script: str, *words: str, **changed: str) -> tuple[int, str]:
        """Exit code and words of a command that starts no process of its own: in a fork, as it imports much."""
        asked = forked.Forked(words, self.repository, {**self.environ, **changed}, script=str(ROOT / script))
        output, _ = asked.communicate(timeout=HANGS_SEC)
        self.printed.append(output)
        return asked.wait(), output

    def leaked(self, text: bytes) -> list[str]:
        """Where the secrets that stand in a text were planted."""
        return [where for where, value in self.values.items() if any(form in text for form in forms(value))]


def forms(value: str) -> set[bytes]:
    user = f"heidi:{value}"
    plain = {value, quote(value), quote(value, safe=""), quote_plus(value), html.escape(value), repr(value)[1:-1]}
    plain |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {form.encode() for form in plain} | {base64.b64encode(text.encode()) for text in (value, user)}


def command_lines(pid: int) -> set[str]:
    lines = set()
    with suppress(psutil.Error):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error):
                lines.add(" ".join(process.cmdline()))
    return lines


@pytest.fixture(scope="module")
def planted(team_server: TeamServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    accounts = team_server.accounts
    password = secret()
    accounts.add_user("heidi", password)
    home = tmp_path_factory.mktemp("home")
    repository = home / "repository"
    shutil.copytree(ROOT, repository, ignore=lambda folder, names: unwanted(Path(folder), names))
    values = {name: secret() for name in (*SECRET_VARIABLES, *URL_VARIABLES, "git remote", "git diff", "dotenv")}
    values |= {name: secret() for name in COMPOSED}
    composed = {name: text.format(values[name], quoted=quote(values[name], safe="")) for name, text in COMPOSED.items()}
    values["STORE_PASSWORD as a whole"] = composed["STORE_PASSWORD"]
    values |= {
        "git query": secret(),
        "git client": secret(),
        "password": password,
        "credentials file": secret(),
        "aws file": secret(),
        "netrc": secret(),
    }
    (home / ".mlflow").mkdir()
    stored = f"[mlflow]\nmlflow_tracking_username = heidi\nmlflow_tracking_password = {values['credentials file']}\n"
    (home / ".mlflow/credentials").write_text(stored)
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(f"[default]\naws_secret_access_key = {values['aws file']}\n")
    (home / ".netrc").write_text(f"machine data.example.org login heidi password {values['netrc']}\n")
    plant_in_git(repository, values)
    server = team_server.uri.replace("://", f"://heidi:{quote(password, safe='')}@")
    environ = environment(
        HOME=str(home), PYTHONPATH=str(repository), no_proxy="localhost", MLFLOW_TRACKING_URI=server,
        MLFLOW_TRACKING_SERVER_CERT_PATH=str(team_server.certificate), CUDA_VISIBLE_DEVICES="",
        **{name: values[name] for name in SECRET_VARIABLES}, **composed,
        **{name: f"http://user:{quote(values[name], safe='')}@127.0.0.1:9/" for name in URL_VARIABLES},
    )  # fmt: skip
    yield Planted(repository, environ, values, [], set())
    accounts.remove_user("heidi")


def unwanted(folder: Path, names: list[str]) -> set[str]:
    """Files that git ignores, and git's own."""
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
    query = f"https://example.org/d?private_token={quote(values['git query'], safe='')}"
    modules.write_text(f'[submodule "data"]\n\turl = {url}\n\tpushurl = {query}\n')
    dotenv.write_text(f"MODE=fast\nTEAM_API_KEY={values['dotenv']}\nclient_secret={values['git client']}\n")


@pytest.fixture(scope="module")
def run(planted: Planted) -> Path:
    """The folder of a run that prints all that it can find, and dies of an error that quotes two secrets.

    It is of a sweep, whose other run prints the same and finishes.
    """
    done = planted.run("launch.py", "-m", *TINY, "model.hparams.fault=tell,leak", "tracking.experiment=leaks")
    assert done.returncode == 1, done.stdout + done.stderr
    [leaking] = [path for path in (planted.repository / "runs").glob("*/*fault=leak*") if path.is_dir()]
    return leaking


@pytest.mark.service
def test_no_secret_is_written_printed_or_uploaded(planted: Planted, run: Path, team_server: TeamServer) -> None:
    on_server = content(team_server)
    it_all_arrived_without_secrets(planted, run, on_server)
    read_and_make_mistakes(planted, run)
    for folder in (planted.repository / "runs", team_server.home / "logs", team_server.home / "artifacts"):
        for path in folder.rglob("*"):
            assert not path.is_file() or not planted.leaked(path.read_bytes()), path
    assert not planted.leaked(repr({**on_server, "artifacts": {}}).encode())
    assert any("trainers.loop.worker" in words for words in planted.command_lines)
    for text in (*planted.printed, *planted.command_lines):
        assert not planted.leaked(text.encode()), text


def it_all_arrived_without_secrets(planted: Planted, run: Path, on_server: dict[str, Any]) -> None:
    """The run did what would give its secrets away, and all of that is in its folder and on the server."""
    log = (run / run_folder.WORKER_LOG).read_text()
    for words in (
        "HF_TOKEN=***", "'PGPASSWORD': '***'", "http://***@127.0.0.1:9/", "mlflow_tracking_password = ***",
        "aws_secret_access_key = ***", "login heidi password ***", '"STORE_PASSWORD": "***"', "the account's key: ***",
    ):  # fmt: skip
        assert words in log
    assert "ConnectionError: http://***@127.0.0.1:9/ does not take ***" in log
    failure = json.loads((run / run_folder.RESULT).read_text())["failure"]
    assert "does not take ***" in failure["message"]
    assert "does not take ***" in failure["traceback"]
    git = json.loads((run / run_folder.FINGERPRINT).read_text())["git"]
    assert "oauth2" not in git["diff"]
    assert "+TEAM_API_KEY=***\n+client_secret=***" in git["diff"]
    assert "MLflow UI: https://localhost" in planted.printed[0]
    assert Mirror(run).complete
    assert any(b"does not take ***" in file for file in on_server["artifacts"].values())
    assert any("does not take ***" in row for row in on_server["tracking.tags"])


def read_and_make_mistakes(planted: Planted, run: Path) -> None:
    """Read the runs, give options with secrets in them, and upload as somebody else: all of it is printed."""
    for words in (["report", run.parent.name, "--out", "runs/report"], ["diff", *map(str, run.parent.glob("*fault*"))]):
        code, output = planted.told(TRACKING, *words)
        assert code == 0, output
    for option, name in (
        ("+stack.env.HF_TOKEN={}", "HF_TOKEN"), ("dataset.path='https://a/b?sig={}'", "BLOB_SAS_URL"),
        ("+model.hparams.note='{}'", "SERVICE"), ("no.such.option='{}'", "PGPASSWORD"), ("note='a={}", "ALERT_WEBHOOK"),
    ):  # fmt: skip
        assert planted.told("launch.py", *TINY, option.format(planted.values[name]))[0] == 2
    refusal = "stack.env.HF_TOKEN=***: names a secret, which run folders would keep. Next: export"
    assert refusal in "".join(planted.printed)
    wrong = planted.environ["MLFLOW_TRACKING_URI"].replace("heidi", "nobody")
    (run / run_folder.MIRROR).unlink()
    code, output = planted.told(TRACKING, "sync", str(run), MLFLOW_TRACKING_URI=wrong)
    assert (code, "Refused" in output) == (1, True)
    code, output = planted.told("launch.py", *TINY, MLFLOW_TRACKING_URI=wrong)
    assert (code, "password of nobody is wrong" in output) == (2, True)
    code, output = planted.told(TRACKING, "sync", str(run))
    assert (code, "complete" in output) == (0, True), output
