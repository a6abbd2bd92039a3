"""The compose file, as far as it can be checked without its images: every name in it leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from configparser import ConfigParser
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from click import Context
from packaging.requirements import Requirement

from deploy import compose_init
from deploy.native import certificate
from deploy.native.postgresql import PostgreSQL
from deploy.native.services import AUTH_INI, TEMPLATE, MLflow
from deploy.native.settings import Settings
from tests.support.commands import ROOT
from tests.support.team_server import install

DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")


def requirement(name: str, lines: list[str]) -> Requirement:
    [pin] = [line for line in map(Requirement, lines) if line.name == name]
    return pin


def read(name: str) -> list[str]:
    return [line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("#")]


def pins() -> list[str]:
    return read("requirements.txt")


def test_every_image_is_pinned_to_a_version() -> None:
    images = [service["image"] for service in SERVICES.values()]
    base = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for image in images + base:
        assert re.search(r":\d+\.\d+(\.\d+)?(-\w+)*$", image), image


def test_what_has_no_limit_lies_on_a_disk() -> None:
    """MLflow writes whole artifacts to TMPDIR, and a tmpfs is memory."""
    for name, service in SERVICES.items():
        for mount in service.get("tmpfs", []):
            assert "size=" in mount, f"{name}: {mount} has no limit"
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for mount in SERVICES["mlflow"]["volumes"]:
        volume, inside, *_ = mount.split(":")
        if volume in COMPOSE["volumes"]:  # It takes its owner from the image's folder.
            assert re.search(rf"install -d -o mlflow -m 7\d\d {inside}\b", dockerfile), mount
    mounted = {mount.split(":")[1] for mount in SERVICES["mlflow"]["volumes"]}
    assert SERVICES["mlflow"]["environment"]["TMPDIR"] in mounted


def test_one_version_of_mlflow_everywhere() -> None:
    pinned = requirement("mlflow", pins())
    assert str(pinned.specifier) == f"=={version('mlflow')}", "deploy/requirements.txt has the version that is tested"
    assert "auth" in pinned.extras
    asked = re.search(r'"(mlflow[^"]*)"', (ROOT / "pyproject.toml").read_text())
    assert asked
    assert version("mlflow") in Requirement(asked[1]).specifier
    assert SERVICES["mlflow"]["image"].endswith(f":{version('mlflow')}")


def test_every_package_is_pinned_and_what_was_asked_for_is_what_is_tested() -> None:
    asked = {line.name for line in map(Requirement, read("requirements.in"))}
    here = [line for line in map(Requirement, pins()) if not line.marker or line.marker.evaluate()]
    assert asked < {pin.name for pin in here}, "requirements.txt is not made from requirements.in"
    assert len(here) > 70
    for pin in here:
        assert [part.operator for part in pin.specifier] == ["=="], f"{pin}: not pinned"
        # A package index that is late holds an older version of some package that only another one needs, so those
        # are not compared.
        if pin.name in asked:
            with suppress(PackageNotFoundError):  # boto3
                tested = f"=={version(pin.name)}"
                assert str(pin.specifier) == tested, f"{pin}: {tested} is tested; docs/server.md, Upgrade"


@pytest.mark.slow
def test_no_password_has_a_default_and_all_are_generated(tmp_path: Path) -> None:
    (tmp_path / "compose").mkdir()
    assert compose_init.main(["mlflow.example.org"], tmp_path) == 0
    path = tmp_path / ".env"
    written = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert path.stat().st_mode & 0o077 == 0
    assert all(len(written[name]) >= 32 for name in compose_init.GENERATED)
    for name, kind, _ in VARIABLE.findall(TEXT):
        if kind == "-":
            assert name in ("PORT", "LISTEN_ADDRESS")
        else:
            assert name in written
    required = {name for name, kind, _ in VARIABLE.findall(TEXT) if kind == "?"}
    assert required >= {*compose_init.GENERATED, "HOST_NAME"}
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|ACCESS_KEY", name):
                assert VARIABLE.fullmatch(str(value)), f"{name} is written out"
    before = path.read_text(), (tmp_path / "compose/tls/key.pem").read_text()
    assert compose_init.main(["mlflow.example.org"], tmp_path) == 0
    assert (path.read_text(), (tmp_path / "compose/tls/key.pem").read_text()) == before


@pytest.mark.slow
def test_another_host_name_gets_a_certificate_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compose").mkdir()
    made = tmp_path / "compose/tls/certificate.pem"
    for name, is_new in (("a.example.org", False), ("b.example.org", True), ("b.example.org", False)):
        assert compose_init.main([name], tmp_path) == 0
        assert certificate.covers_name(made, name)
        assert ("certificate.pem is new, for the new name. Next: copy it" in capsys.readouterr().out) is is_new


@pytest.mark.parametrize("name", ["my host", "a\nADMIN_PASSWORD=x", "a\n", "", "a,DNS:b", "$(id)"])
def test_what_is_no_host_name_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as refused:
        compose_init.main([name], tmp_path)
    assert refused.value.code == 2
    assert f"HOST_NAME {name!r}: not a host name. Allowed: letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def options_of(command: list[str], environ: dict[str, Any]) -> dict[str, object]:
    """The options of `mlflow server` by name, from a command and from the environment."""
    from mlflow.cli import server

    words = command[command.index("server") + 1 :]
    known = {option.envvar: option for option in server.params if isinstance(option.envvar, str)}
    by_environment = {known[name].name: value for name, value in environ.items() if name in known}
    asked, _, _ = server.make_parser(Context(server)).parse_args(list(words))
    return {str(name): value for name, value in {**by_environment, **asked}.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's command line imports what warns.
def test_mlflow_is_told_the_same_as_by_the_native_script(tmp_path: Path) -> None:
    [command] = re.findall(r"^CMD (\[.*?\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL)
    shell = json.loads(command.replace("\\\n", ""))[-1]
    environ = SERVICES["mlflow"]["environment"]
    composed = options_of(shlex.split(shell.partition("exec ")[2]), environ)
    settings = Settings(tmp_path, names=["${HOST_NAME}"], listen="0.0.0.0:8443")
    native = MLflow(settings, PostgreSQL(settings))
    known = native.environment(tmp_path / "auth.ini")
    asked = options_of(native.command(), known)
    assert composed.keys() == asked.keys()
    assert composed["app_name"] == asked["app_name"] == "basic-auth"
    assert composed["serve_artifacts"] is asked["serve_artifacts"] is True
    options = [
        str(values["uvicorn_opts"]).replace(str(native.socket), "/run/mlflow/mlflow.sock")
        for values in (composed, asked)
    ]
    assert options[0] == options[1]
    for name in ("allowed_hosts", "cors_allowed_origins"):
        lists = [str(values[name]).replace("${PORT:-8443}", "8443") for values in (composed, asked)]
        lists[0] = VARIABLE.sub(r"${\1}", lists[0])
        assert set(lists[0].split(",")) == set(lists[1].split(",")), name
    # Options that only the environment sets.
    for name in (name for name in known if name.startswith("MLFLOW_")):
        assert name in environ, f"{name}: the native script sets it, and the compose file does not"
    for name in ("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "MLFLOW_DISABLE_TELEMETRY"):
        assert environ[name] == known[name]


def test_users_are_treated_the_same_as_by_the_native_script() -> None:
    contained, native = ConfigParser(), ConfigParser()
    contained.read(DEPLOY / "compose/auth.ini")
    native.read_string(AUTH_INI.format(default_permission="READ", uri="-"))
    sections = [dict(parser["mlflow"]) | {"database_uri": "-"} for parser in (contained, native)]
    assert sections[0] == sections[1]


def test_every_file_is_there_or_is_made() -> None:
    made = {"./compose/tls"}
    for service in SERVICES.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert source in made or (DEPLOY / source).is_file(), source
            else:
                assert source in COMPOSE["volumes"]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / ".dockerignore").read_text()
    for source in re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE):
        assert (DEPLOY / source).exists()
        assert f"!{source}\n" in ignored
    copied = re.findall(r"^COPY \S+ (\S+)", dockerfile, re.MULTILINE)
    assert SERVICES["mlflow"]["healthcheck"]["test"][-1] in copied


def test_only_the_proxy_can_be_reached() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert SERVICES["proxy"]["ports"] == ["${LISTEN_ADDRESS:-127.0.0.1}:${PORT:-8443}:8443"]
    assert COMPOSE["networks"]["inner"] == {"internal": True}
    for name, service in SERVICES.items():
        assert service["networks"] == (["outer"] if name == "proxy" else ["inner"])
        assert service["healthcheck"]["test"]
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert other in SERVICES


@pytest.mark.service
def test_nginx_takes_the_configuration_of_the_container(tmp_path: Path) -> None:
    """Filled in as the image's envsubst does it: what is in the environment, and nothing else."""
    install()
    (tmp_path / "compose").mkdir()
    compose_init.main(["localhost"], tmp_path)
    environment = {key: str(value) for key, value in SERVICES["proxy"]["environment"].items()}
    asked = set(re.findall(r"\$\{(\w+)\}", TEMPLATE.read_text()))
    assert asked <= {*environment, "NAMES"}
    here = {"CERTIFICATE": f"{tmp_path}/compose/tls/certificate.pem", "KEY": f"{tmp_path}/compose/tls/key.pem"}
    here |= {"SERVER_NAME": "localhost", "ACCESS_LOG": f"{tmp_path}/access.log", "LISTEN": "127.0.0.1:1"}
    site = Template(TEMPLATE.read_text()).safe_substitute(environment | here)
    config = tmp_path / "nginx.conf"
    config.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{site}\n}}\n")
    command = ["/usr/sbin/nginx", "-t", "-c", str(config), "-e", str(tmp_path / "error.log"), "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "syntax is ok" in done.stderr, done.stderr
