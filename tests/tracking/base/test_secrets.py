"""Recognised secrets, requests that are refused because of one, and servers that get none."""

from __future__ import annotations

import html
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conf.schema import ConfigError
from tests.support.commands import HANGS_SEC, ROOT, environment, launch
from tests.support.mlflow_server import answering
from tracking.base.secret_looks import LOOKS, SHORT_CHARS, hide, hide_everywhere
from tracking.base.secrets import REDACTED, is_secret_name, known, redact
from tracking.record import documents, run_folder
from tracking.record.journal import Journal
from tracking.record.worker_log import LINE_BYTES, WorkerLog

REFUSED = {
    "stack.env.HF_TOKEN=hf-secret-4711": "export HF_TOKEN in the environment; the worker inherits it",
    "+stack.env.http_proxy=http://me:secret-4711@proxy": "stack.env.http_proxy=***: contains a secret",
    "tracking.uri=https://me:secret-4711@localhost": "MLFLOW_TRACKING_PASSWORD",
    "tracking.uri=https://secret-4711@localhost": "MLFLOW_TRACKING_PASSWORD",
    "tracking.uri='postgresql://localhost/db?password=secret-4711'": "MLFLOW_TRACKING_PASSWORD",
    "dataset.path=s3://key:secret-4711@host/data": "dataset.path=***: contains a secret",
    "+model.hparams.api_key=secret-4711": "model.hparams.api_key=***: contains a secret",
    "instance.source=$WANDB_API_KEY": "instance.source=***: contains a secret",
}


@pytest.mark.slow
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    from tests.support.composing import composed
    from tracking.request import checks, refusal

    os.environ["WANDB_API_KEY"] = "secret-4711"
    try:
        for override, words in REFUSED.items():
            override = override.replace("$WANDB_API_KEY", "secret-4711")
            config = composed([f"+{override}" if override.startswith("stack.env") else override])
            with pytest.raises(ConfigError) as refused:
                checks.check_run(config, [])
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
    from tests.support.composing import composed
    from tracking.jobs.node import signals
    from tracking.jobs.queues.launcher import Launcher
    from tracking.request import checks
    from tracking.store import server

    monkeypatch.setattr(signals, "raise_on_signals", lambda: None)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "nobody")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    with answering(401) as (uri, asked):
        server.option_uri(uri)
        for offline in (False, True):
            config = checks.check_run(composed([f"tracking.uri={uri}", f"tracking.offline={offline}"]), [])
            launcher = Launcher(config, [], 0.0)
            if offline:
                launcher.check_server()
            else:
                with pytest.raises(ConfigError, match="the password of nobody is wrong"):
                    launcher.check_server()
            assert len(asked) == 1


def test_options_that_only_sound_like_secrets_pass() -> None:
    from tests.support.composing import composed
    from tracking.request import checks

    harmless = [
        "+stack.env.TOKENIZERS_PARALLELISM=false",
        "+stack.env.NCCL_DEBUG=INFO",
        "tracking.uri=postgresql://me@host/db",
    ]
    checks.check_run(composed(harmless), [])
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


@pytest.mark.slow
def test_run_folders_are_private(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        folder = run_folder.create(tmp_path / "runs", "run")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    documents.write_text(folder / "a.txt", "a")
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        for parent in tmp_path.parents[:-2]:
            parent.chmod(0o755)
        seen = subprocess.run(["cat", folder / "a.txt"], user="nobody", extra_groups=[], capture_output=True)
        assert b"Permission denied" in seen.stderr


def test_credentials_files_are_known_and_those_that_cannot_be_read_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_secret_access_key = Abcdefg1/+\n")
    elsewhere = tmp_path / "my.netrc"
    elsewhere.write_text("machine a login b password Hijklmn2\nmachine c login d password Opqrstu3\n")
    environ = {"HOME": str(tmp_path), "NETRC": str(elsewhere)}
    assert known(environ) == {"Abcdefg1/+", "Hijklmn2", "Opqrstu3"}
    elsewhere.write_text("what is this")
    (tmp_path / ".aws/credentials").write_bytes(b"\xff[")
    assert known(environ) == frozenset()
    assert known({"HOME": str(elsewhere)}) == frozenset()  # no folder at all


def test_a_line_without_an_end_is_not_cut_within_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "Z1y2x3w4")
    log = WorkerLog(tmp_path / "worker.log")
    with log as output:
        for size in (LINE_BYTES, 10, 10):  # the reader takes what is there at the moment
            os.write(output, b"x" * size + b" Z1y2")
            time.sleep(0.2)
            os.write(output, b"x3w4 ")
    log.close()
    text = (tmp_path / "worker.log").read_text()
    assert len(text) > LINE_BYTES
    assert "Z1y2" not in text
    assert text.count("***") == 3


# A text, and the same text redacted.
HIDDEN = {
    "GET /a?sv=1&sig=aB3%2Fx%3D&se=2": "GET /a?sv=1&sig=***&se=2",
    "https://b/k?X-Amz-Signature=0a1b2c3d4e&X-Amz-Date=2": "https://b/k?X-Amz-Signature=***&X-Amz-Date=2",
    "AccountName=a;AccountKey=aB3/x+y==;EndpointSuffix=b": "AccountName=a;AccountKey=***;EndpointSuffix=b",
    "curl 'https://a/b?token=aB3xyz'": "curl 'https://a/b?token=***'",
    "login with token=aB3xyz9 failed": "login with token=*** failed",
    "client_secret=aB~cDefg, retries=3": "client_secret=***, retries=3",
    "{'clientSecret': 'it''s a'}": "{'clientSecret': 'it''s a'}",  # too short to be one
    '{"client_secret": "a \\"b\\" c d"}': '{"client_secret": "***"}',
    '"{\\"access_token\\": \\"aB3xyz9\\"}"': '"{\\"access_token\\": \\"***\\"}"',
    "tool --api-key aB3xyz9 --rest": "tool --api-key *** --rest",
    "['tool', '--password', 'aB3xyz9']": "['tool', '--password', '***']",
    "authorization: token aB3xyz9": "authorization: token ***",
    "X-Api-Key: aB3xyz9": "X-Api-Key: ***",
    "https://hooks.slack.com/services/T0/B0/aB3xyz9": "https://hooks.slack.com/services/***",
    "https://a.webhook.office.com/webhookb2/0a@1b/IncomingWebhook/2c": "https://a.webhook.office.com/webhookb2/***",
    f"https://api.telegram.org/bot123456789:AA{33 * 'x'}/send": "https://api.telegram.org/bot***/send",
    f"hvs.{24 * 'a'} dapi{32 * '0'} api_org_{34 * 'a'} SG.{22 * 'a'}.{43 * 'b'} dp.st.prd.{40 * 'a'}": " ".join(
        5 * ["***"]
    ),
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOY\n-----END PGP PRIVATE KEY BLOCK----- a": "*** a",
    "AWS4-HMAC-SHA256 Signature=0a1b2c3d4e5f6a7b": "AWS4-HMAC-SHA256 Signature=***",
    "<user>me</user><password>a b c d</password>": "<user>me</user><password>***</password>",
    "next=https%3A%2F%2Fa%3Ftoken%3DaB3xyz9%26page%3D2": "next=https%3A%2F%2Fa%3Ftoken%3D***",
    "curl -u me:aB3xyz9 https://a; docker -u 1000:100000 x": "curl -u me:*** https://a; docker -u 1000:100000 x",
    "https://me:a@b3xyz@host/r": "https://***@host/r",
    "postgresql://me:a/b?c#d9@host/db": "postgresql://***@host/db",
    "http://host:80/a@b": "http://host:80/a@b",
    "refused: stack.env.HF_TOKEN: names a secret": "refused: stack.env.HF_TOKEN: names a secret",
    "unexpected token: some_name; num_tokens=123456, pad_token_id=50256": None,
}


def test_what_looks_like_a_secret_is_hidden_and_the_rest_is_kept() -> None:
    for text, left in HIDDEN.items():
        assert redact(text, {"HOME": "/"}) == (left or text)


# Programs print much, and a line in a thousand holds a clue to a secret: only such lines are searched.
PRINTED = ("loss 2.5", "", "  ", "1,000 tokens/s", "key", "x" * 900, "Bearer ", "=", "aB3xyz9q", "A_TOKEN", ":")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from((*HIDDEN, *PRINTED)) | st.from_regex(LOOKS), max_size=12), st.sampled_from("\n \r"))
def test_a_long_text_is_hidden_as_if_all_of_it_were_searched(parts: list[str], between: str) -> None:
    text = between.join(parts) + SHORT_CHARS * "x\n"
    assert hide(text) == hide_everywhere(text)


def test_a_letter_that_is_small_or_large_in_unicode_alone_hides_no_clue() -> None:
    for name in ("\u212aEY", "\u017fecret", "S\u0131g", "\u017fas"):
        assert hide(f"https://a/b?{name}=aB3xyz9q") == f"https://a/b?{name}=***"


def test_a_known_secret_is_found_however_it_is_written() -> None:
    value = "Q\"W\\D é€😀 <&>'Z+/="
    inner = json.dumps({"a": value})
    written = [
        value, inner, json.dumps(inner), json.dumps(value, ensure_ascii=False), repr(value), ascii(value),
        repr({"'": value, '"': value}), repr(value.encode()), yaml.safe_dump([value]), html.escape(value),
        json.dumps(html.escape(value)), html.escape(repr({"'": value, '"': value})), quote(json.dumps(value)),
        quote(value), quote(quote(value)), quote_plus(value),
        re.sub("%..", lambda match: match[0].lower(), quote(value)),
        value.encode("ascii", "backslashreplace").decode(),
    ]  # fmt: skip
    for text in written:
        left = redact(f"x {text} y", {"HOME": "/", "MY_PASSWORD": value})
        assert left.count("***") == text.count("Q"), text
        assert not re.search(r"[QWDZé€😀]|(?i:%5a|%3c)", left), left


# Variables, and the parts of them that give something away wherever they stand.
SECRET_PARTS = {
    "AZURE_STORAGE_CONNECTION_STRING=AccountName=a;AccountKey=aB3/x+y==;Suffix=b": ["aB3/x+y=="],
    "BLOB_SAS_URL=https://a.example.org/c?sv=1&sig=aB3%2Fx%3D": ["aB3%2Fx%3D", "aB3/x=", "/c?sv=1&sig=aB3%2Fx%3D"],
    "TRAIN_DATA=https://b/k?X-Amz-Signature=0a1b2c3d": ["0a1b2c3d"],
    "WEBHOOK_URL=https://chat.example.org/T0/0a1b2c3d4e5f6a7b8": ["0a1b2c3d4e5f6a7b8", "/T0/0a1b2c3d4e5f6a7b8"],
    "SENTRY_DSN=https://0a1b2c@sentry.example.org/1": ["0a1b2c"],
    "SERVICE=host=a client_secret=aB3xyz9": ["aB3xyz9"],
    "DATABASE_URL=postgresql://me:a@b9xyz@host/db": ["a@b9xyz"],
    'GCP_KEY={"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQ9\\n"}': ["MIIEvQ9"],
}


def test_the_parts_of_a_variable_are_secrets_too() -> None:
    for variable, parts in SECRET_PARTS.items():
        name, _, value = variable.partition("=")
        for part in (*parts, *([value] if name != "TRAIN_DATA" else [])):
            assert part not in redact(f"x {part} y", {"HOME": "/", name: value}), (name, part)
    harmless = {
        "HOME": "/",
        "http_proxy": "http://proxy:8080/a@b",
        "URL": "https://example.org/some/long/path/of/it?a=b",
    }
    assert known(harmless) == frozenset()


CRASHES = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from tracking.base import secrets

def login(password):
    raise ValueError(f"user me, password {password}")

secrets.guard_tracebacks()
if sys.argv[2] == "thread":
    thread = threading.Thread(target=login, args=("hunter2-4711",))
    thread.start()
    thread.join()
elif sys.argv[2] == "cause":
    try:
        login("hunter2-4711")
    except ValueError as error:
        raise RuntimeError("no login") from error
else:
    login("hunter2-4711")
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["main", "thread", "cause"])
def test_a_traceback_that_ends_a_process_shows_no_secret(tmp_path: Path, where: str) -> None:
    (tmp_path / "crash.py").write_text(CRASHES)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "crash.py"), str(ROOT), where],
        env=environment(MLFLOW_TRACKING_PASSWORD="hunter2-4711"), capture_output=True, text=True, timeout=HANGS_SEC,
    )  # fmt: skip
    assert "Traceback (most recent call last):" in done.stderr
    assert f"ValueError: user me, password {REDACTED}" in done.stderr
    assert "4711" not in done.stderr
    assert done.returncode == (0 if where == "thread" else 1)


@pytest.mark.slow
def test_the_launchers_own_crash_shows_no_secret(tmp_path: Path) -> None:
    """A bug of ours, which nobody turns into words: here in what composes the jobs."""
    lines = "import sys, launch\n\ndef broken(events):\n    raise AssertionError('token hunter2-4711')\n\n"
    (tmp_path / "crash.py").write_text(lines + "launch.collect = broken\nsys.exit(launch.main())\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "crash.py")], cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_SEC,
        env=environment(MLFLOW_TRACKING_TOKEN="hunter2-4711", PYTHONPATH=str(ROOT)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"AssertionError: token {REDACTED}\n")
    assert "4711" not in done.stderr
