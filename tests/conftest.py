"""What tests of several files share: one server of a team, and one cluster, for the whole session."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import hypothesis
import pytest

from tests.support import forked, process_state, slurm_cluster
from tests.support.slurm_cluster import Cluster
from tests.support.team_server import TeamServer

gc.disable()  # Until all tests are collected, it would find nothing and look at the same objects again and again.
# Tests start some hundred processes, and a machine may keep no bytecode (PYTHONDONTWRITEBYTECODE, an installer that
# compiles nothing): then each would compile torch's and MLflow's sources anew, which is half of the time of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).resolve().parent.parent / ".bytecode_cache")
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]
# A process that has loaded readline, such as pytest's first, exports a terminal's width, which its children inherit.
os.environ.pop("COLUMNS", None)
# Two workers and what they start share the cores: with as many threads each, they would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Workers of the tests' own workloads need no package that torchmetrics imports, which takes as long as PyTorch does.
os.environ.setdefault("TIMETRIAL_ALL_IMPORTS", "0")
# In each empty cache, PyTorch's compiler would build a dozen programs to see which vector instructions there are.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
# The key that signs folders is the tests' own.
os.environ["XDG_STATE_HOME"] = str(Path(__file__).resolve().parent.parent / ".pytest_cache" / "state")
# Tests in the background of a script, or under nohup, ignore these signals, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine makes examples slow. That is not a fault of the code.
slow_is_no_failure = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=slow_is_no_failure)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Undo what a test leaves in its process: variables, PyTorch's settings, a process group, the GPU's memory."""
    with process_state.kept():
        yield
    if request.node.get_closest_marker("gpu"):
        process_state.free_gpus()


@pytest.fixture(scope="session")
def team_server() -> Iterator[TeamServer]:
    with TeamServer() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    yield from slurm_cluster.running()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.scheduling import TogetherByShared

    return TogetherByShared(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the workers of `make check` start, which all fork from one process."""
    if config.getvalue("dist") == "loadfile":
        forked.share()


# Packages that tests alone import. A machine that only runs the GPU tests need not have them.
FOR_TESTS = (
    "flask_wtf", "hatchling", "jsonschema", "markdown_it", "mlperf_logging", "optuna", "playwright", "psycopg",
    "pycocotools", "pyspiel", "sklearn", "xdist",
)  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file of tests that imports a missing package of `FOR_TESTS`, with that reason."""
    report = yield
    error = report.call.excinfo.value.__cause__ if report.failed and report.call and report.call.excinfo else None
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in FOR_TESTS:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: needs {error.name}, which is not installed")
    return report


# ----------------------------------------------------------------------------------------- what `make quick` leaves out

# Fixtures of several files that start a process, or take seconds.
SLOW_FIXTURES = {"team_server", "server", "proxy", "empty_database"}
NOT_QUICK = ("slow", "service", "gpu")
STARTING = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
# Searches that importing torch, matplotlib (for fonts, once a machine) or platform starts, and which take no time.
LOOKUPS = {"fc-list", "ldconfig", "uname"}
_quick_test: str | None = None  # the one that is running now, if it is among the quick ones


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the fixtures above, and put files with slow tests first.

    Several workers then have short work left at the end.
    """
    slow_files = set()
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if SLOW_FIXTURES & fixtures:
            item.add_marker("slow")
        if item.get_closest_marker("slow") or item.get_closest_marker("service"):
            slow_files.add(item.path)
    items.sort(key=lambda item: item.path not in slow_files)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end; the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Know whether the test may start a process, its fixtures included."""
    global _quick_test
    _quick_test = None if any(item.get_closest_marker(name) for name in NOT_QUICK) else item.nodeid
    try:
        return (yield)
    finally:
        _quick_test = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """A session's server ends with the last test, which may be a quick one."""
    global _quick_test
    _quick_test = None


def refuse_process(event: str, arguments: tuple[object, ...] = ()) -> None:
    """Keep the quick tests quick, on any machine: the interpreter calls this for each of its audit events."""
    if _quick_test and event in STARTING and Path(str(arguments[0] if arguments else "")).name not in LOOKUPS:
        pytest.fail(
            f"{_quick_test} starts a process ({event} {arguments[:2]}), and quick tests start none: "
            "give it the marker `slow` (CONTRIBUTING.md)"
        )


def start_process(process: BaseProcess) -> None:
    """Refuse what multiprocessing starts too, which raises no audit event of these."""
    refuse_process("os.fork", (process.name,))
    _start(process)


_start = BaseProcess.start
BaseProcess.start = start_process  # type: ignore[method-assign]
sys.addaudithook(refuse_process)
