"""Imports follow layers and rooms; hydra, mlflow and torch stay in theirs; files, functions and folders stay small."""

from __future__ import annotations

import ast
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import HANGS_SEC, ROOT, environment

LAYERS = {"conf": {"conf"}, "tracking": {"conf", "tracking"}, "trainers": {"conf", "tracking", "trainers"}}
# From the ground up, as docs/architecture.md draws them: a room imports only those that stand before it.
ROOMS = (
    "tracking.base", "tracking.request", "tracking.record",
    "tracking.machine.environment", "tracking.machine.usage", "tracking.machine.stacks", "tracking.machine.compiled",
    "tracking.measure.programs", "tracking.measure.kernels", "tracking.measure.steps", "tracking.measure.training",
    "tracking.measure.bottleneck",
    "tracking.store.server", "tracking.store.mirror",
    "tracking.analysis.results", "tracking.analysis.statistics", "tracking.analysis.compare",
    "tracking.analysis.search",
    "tracking.analysis.report.pictures", "tracking.analysis.report.sentences", "tracking.analysis.report",
    "tracking.analysis.published", "tracking.analysis.mlperf",
    "tracking.analysis.audit.arithmetic", "tracking.analysis.audit.journals", "tracking.analysis.audit.evidence",
    "tracking.analysis.audit.searches", "tracking.analysis.audit.questions", "tracking.analysis.audit.answers",
    "tracking.analysis.audit",
    "tracking.jobs.worker_command", "tracking.jobs.program", "tracking.jobs.handover", "tracking.jobs.node",
    "tracking.jobs.ownership", "tracking.jobs.plan", "tracking.jobs.search",
    "tracking.jobs.follow", "tracking.jobs.watch", "tracking.jobs.queues",
    "tracking.jobs.importing", "tracking.jobs.doctor",
    "tracking.cli", "tracking.api", "tracking.lightning", "tracking.__main__",
    "trainers.ops", "trainers.data", "trainers.workload", "trainers.confusion", "trainers.models",
    "trainers.loop.saving", "trainers.loop",
    "trainers.loop.worker", "trainers.ceilings",
)  # fmt: skip
FLOORS = {".".join(room.split(".")[:2]) for room in ROOMS} - set(ROOMS)  # Each holds rooms, and nothing else.
# Rooms of many parts that have nothing to do with each other, so that importing all for one would only cost time:
# others import their modules.
OPEN = {
    "tracking.base", "tracking.request", "trainers.ops", "trainers.data", "trainers.models", "trainers.loop",
}  # fmt: skip
# They import no other room that knows of runs, so that they are independent.
ALONE = {room for room in ROOMS if room.startswith("tracking.analysis.audit")}
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))] + [ROOT / "launch.py"]
BENCHMARKS = (
    "steps",
    "cudnn",
    "data",
    "peers",
    "larger",
    "overhead",
    "starts",
    "server",
    "reports",
)  # in order, no face
OUTSIDE = [
    path for folder in ("timetrial", "benchmarks", "deploy", "docs") for path in sorted((ROOT / folder).rglob("*.py"))
]
OUTSIDE.append(ROOT / "hatch_build.py")
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 260, 45
TORCH = {"torch", "torchvision", "torchmetrics", "pytorch_lightning", "lightning"}
CONTROL_SIDE = {"hydra", "omegaconf", "mlflow"}  # A worker's environment need not have them.
WITH_MLFLOW = {
    "tracking/store/server/stores.py",
    "tracking/store/server/answer_check.py",
    "tracking/store/mirror/server_check.py",
    "tracking/store/server/database.py",
    "tracking/store/server/empty_database.py",
    "tracking/store/mirror/description.py",
    "tracking/store/mirror/row_uploads.py",
    "tracking/store/mirror/mirror.py",
    "tracking/store/mirror/model_upload.py",
    "tracking/store/server/server_errors.py",
}
WITH_TORCH = {
    "tracking.measure.steps",
    "tracking.measure.training",
    "tracking.api",
    "tracking.lightning",
    *(room for room in ROOMS if room.startswith("trainers.") and room != "trainers.loop.worker"),
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    return name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def room(imported: str) -> str:
    """The room that a module lies in; its first two parts where it lies in none."""
    parts = imported.split(".")
    heads = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((head for head in heads if head in ROOMS), ".".join(parts[:2]))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """The whole tree of a file, its module first. It is read once for all tests here."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def all_imports(path: Path) -> list[tuple[str, str, bool, bool]]:
    """Module and name of each import; whether it is in a function; whether it is for types alone."""
    listed: list[tuple[str, str, bool, bool]] = []
    nodes: list[tuple[ast.AST, bool, bool]] = [(nodes_of(path)[0], False, False)]
    while nodes:
        node, inside, typed = nodes.pop()
        if isinstance(node, ast.Import):
            listed += [(alias.name, "", inside, typed) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: imports are absolute"
            assert node.module
            listed += [(node.module, alias.name, inside, typed) for alias in node.names]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += [(each, inside, True) for each in node.body] + [(each, inside, typed) for each in node.orelse]
        elif not isinstance(node, ast.expr):
            inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            nodes += [(each, inside, typed) for each in ast.iter_child_nodes(node)]
    return listed


@pytest.fixture(scope="module", autouse=True)
def let_go_of_the_trees() -> Iterator[None]:
    yield
    nodes_of.cache_clear()


def imports(path: Path, module_level_only: bool = False, for_types: bool = False) -> list[tuple[str, str]]:
    """Module and name of what a file imports (no name for `import x`), with or without what is for types alone."""
    return [
        (imported, what)
        for imported, what, inside, typed in all_imports(path)
        if not (inside and module_level_only) and (for_types or not typed)
    ]


def tops(path: Path, module_level_only: bool = False) -> set[str]:
    return {imported.partition(".")[0] for imported, _ in imports(path, module_level_only)}


def rooms_used(path: Path) -> Iterator[tuple[str, str, str]]:
    """Room, module and name of all that a file imports of our rooms, for types too."""
    for imported, what in imports(path, for_types=True):
        if imported.partition(".")[0] in ("tracking", "trainers"):
            whole = f"{imported}.{what}" if what and room(imported) != room(f"{imported}.{what}") else imported
            yield room(whole), imported, what


def imports_only_what_it_may(path: Path) -> None:
    packages, at_module_level = tops(path), tops(path, module_level_only=True)
    layer = name(path).partition("/")[0]
    if layer in LAYERS:
        assert packages & {*LAYERS, "launch", "timetrial"} <= LAYERS[layer]
        assert not packages & {"hydra", "omegaconf"}
        assert "tomllib" not in at_module_level  # A worker's Python may be 3.10, which lacks it.
    if name(path) not in WITH_MLFLOW:
        assert "mlflow" not in packages
    if room(module(path)) not in WITH_TORCH:
        assert not at_module_level & TORCH
    if layer == "conf":
        assert packages <= {*sys.stdlib_module_names, "yaml", "conf"}


def imports_lower_rooms(path: Path) -> None:
    own = room(module(path))
    if path.name == "__init__.py" and (own in FLOORS or "." not in own):
        assert not imports(path)
        return
    assert own in ROOMS, f"{own} is no room: move it into a room of ROOMS, or give it its place there"
    used = {room_used for room_used, _, _ in rooms_used(path)} - {own}
    assert used <= set(ROOMS[: ROOMS.index(own)])
    if own in ALONE:
        assert used <= {*ALONE, "tracking.base", "tracking.request"}


def sees_a_rooms_face_alone(path: Path) -> None:
    """The exports of a room's `__init__`, and the modules of an open room."""
    for used, imported, what in rooms_used(path):
        if used == room(module(path)) or used in OPEN or not (ROOT / used.replace(".", "/")).is_dir():
            continue
        whole_face = f"{imported}.{what}" == used  # Such is `from tracking.store import server`.
        assert whole_face or imported == used, f"from {used} import {what}, not from {imported}"
        assert whole_face or what in importlib.import_module(used).__all__


def test_every_room_says_what_it_is_for_and_exports_what_it_names() -> None:
    folders = {module(path) for layer in ("tracking", "trainers") for path in (ROOT / layer).glob("*/__init__.py")}
    assert folders <= {*ROOMS, *FLOORS}, "a room has its place in the order"
    for folder in FLOORS | {room for room in ROOMS if (ROOT / room.replace(".", "/")).is_dir()}:
        face = importlib.import_module(folder)
        assert len((face.__doc__ or "").split(".")) > 2
        later = getattr(face, "LAZY_MODULES", {})  # what needs a framework that only its user has
        assert all(exported in later or hasattr(face, exported) for exported in getattr(face, "__all__", []))


def test_no_folders_import_each_other_in_a_circle() -> None:
    """The folders within a room, too."""
    folder_of = {module(path): name(path.parent) for path in FILES}
    used: dict[str, set[str]] = {}
    for path in FILES:
        for above, what in imports(path, for_types=True):
            folder = folder_of.get(f"{above}.{what}") or folder_of.get(above)
            if folder and folder != name(path.parent):
                used.setdefault(name(path.parent), set()).add(folder)
    graphlib.TopologicalSorter(used).prepare()


def test_benchmarks_lie_in_rooms_that_say_what_they_ask_and_import_one_way() -> None:
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    assert {path.parent.name for path in files} == {"benchmarks", *BENCHMARKS}
    for path in files:
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            continue
        allowed = {f"benchmarks.{below}" for below in BENCHMARKS[: BENCHMARKS.index(path.parent.name) + 1]}
        whole = {imported if imported.count(".") else f"{imported}.{what}" for imported, what in imports(path)}
        assert {room(imported) for imported in whole if imported.startswith("benchmarks")} <= allowed, name(path)


def test_no_folder_is_a_corridor() -> None:
    for folder in {path.parent for path in FILES + OUTSIDE}:
        assert len(list(folder.glob("*.py"))) <= 16, f"{folder}: are there rooms in it?"


def is_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES, "are there two purposes in it?"
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MOST_LINES_OF_A_FUNCTION, f"{node.name}: has it parts?"


def test_no_files_import_each_other_in_a_circle() -> None:
    """In functions and for types, too: who reads one file of a circle has to read them all."""
    modules = {module(path) for path in FILES}

    def used(path: Path) -> set[str]:
        named = imports(path, for_types=True)
        return {f"{above}.{what}" if f"{above}.{what}" in modules else above for above, what in named} & modules

    graphlib.TopologicalSorter({module(path): used(path) for path in FILES}).prepare()


def test_the_lists_above_name_files_that_exist() -> None:
    assert {name(path) for path in FILES} >= WITH_MLFLOW
    assert {room(module(path)) for path in FILES} >= {*ROOMS}
    assert {*ROOMS} >= WITH_TORCH | OPEN | ALONE


def test_no_module_has_a_name_that_says_nothing() -> None:
    words = {word for path in FILES for word in re.split(r"[_\W]", name(path))}
    assert not words & {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


# Packages with the same parts: models, and datasets.
SAME_PARTS = {"__init__", "__main__", "module", "network", "data", "generated", "loader", "synthetic"}


def test_two_modules_have_one_name_only_where_they_are_two_sides_of_one_thing() -> None:
    """A command and what it runs; a part of a report and its audit."""
    paths: dict[str, list[str]] = {}
    for path in FILES:
        paths.setdefault(path.stem, []).append(name(path))
    for stem in SAME_PARTS & {*paths}:
        paths.pop(stem)
    audit, analysis, cli = "tracking/analysis/audit/", "tracking/analysis/", "tracking/cli/"
    for same in paths.values():
        commands, audits = ([path for path in same if path.startswith(folder)] for folder in (cli, audit))
        others = [path for path in same if path not in commands + audits]
        assert max(map(len, (commands, audits, others))) <= 1, same
        assert not (audits and others) or others[0].startswith(analysis), same


def variables(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each variable and parameter; a class's fields are read with an object's name before them."""
    nodes = nodes_of(path) if path not in TESTS else nodes_of.__wrapped__(path)  # These are asked once.
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    fields = {line.target for node in classes for line in node.body if isinstance(line, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def has_names_that_say_something(path: Path) -> None:
    vague = [f"line {line}: {word}" for line, word in variables(path) if word in {"one", "found"}]
    assert not vague, f"{', '.join(vague)}: a noun says what it is (a run, a match, a row)"


IN_ROOMS = [path for path in FILES if name(path).startswith(("tracking/", "trainers/"))]


@pytest.mark.parametrize(
    ("holds", "paths"),
    [
        (imports_only_what_it_may, FILES),
        (imports_lower_rooms, IN_ROOMS),
        (sees_a_rooms_face_alone, FILES + OUTSIDE),
        (is_short, FILES + OUTSIDE),
        (has_names_that_say_something, FILES + OUTSIDE + TESTS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_of_every_file(holds: Callable[[Path], None], paths: list[Path]) -> None:
    """One test for all files, which would else be two thousand, each longer at being set up than at running."""
    wrong = {}
    for path in paths:
        try:
            holds(path)
        except AssertionError as error:
            wrong[name(path)] = str(error)
    assert not wrong, "\n".join(f"{path}: {words}" for path, words in wrong.items())


def imported_by(command: list[str], cwd: Path) -> tuple[int, set[str]]:
    """Exit code, and the top packages that a Python command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC, check=False,
    )  # fmt: skip
    return done.returncode, set(re.findall(r"^import time:[\d |]*\| +(\w+)", done.stderr, re.MULTILINE))


def further(arguments: list[str], code: int) -> Any:
    return pytest.param(arguments, code, marks=pytest.mark.exhaustive)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--cfg", "job"], 0),
        (["--help"], 0),
        (["gpus=100"], 2),
        further(["sede=2"], 2),
        (["-m", "seed=1,2", "precision=fp32,bf16", "gpus=0", "dry_run=true"], 0),
        further(["gpus=0", "-m", "seed=1,2", "dry_run=true"], 0),
        further(["seed=1,2", "-m", "--cfg", "job"], 2),
        (["seed=1", "--info", "config", "--cfg=job"], 2),
    ],
    ids=str,
)
def test_the_launcher_answers_without_torch_and_mlflow(tmp_path: Path, arguments: list[str], code: int) -> None:
    returned, packages = imported_by([str(ROOT / "launch.py"), *arguments], tmp_path)
    assert returned == code
    assert "hydra" in packages  # the list is not empty for another reason
    assert not packages & {*TORCH, "mlflow"}
    assert not list(tmp_path.iterdir())  # It leaves nothing behind.


@pytest.mark.slow
def test_the_worker_needs_nothing_of_the_control_side(tmp_path: Path) -> None:
    worker = "import trainers.loop.worker, trainers.loop.train, trainers.models.vgg, tracking.machine.environment"
    returned, packages = imported_by(["-c", worker], tmp_path)
    assert returned == 0
    assert "torch" in packages
    assert not packages & CONTROL_SIDE


@pytest.mark.slow
def test_a_node_starts_its_worker_without_what_shows_and_reports(tmp_path: Path) -> None:
    returned, packages = imported_by(["-c", "import tracking.jobs.node.__main__"], tmp_path)
    assert returned == 0
    assert not packages & {*TORCH, *CONTROL_SIDE, "rich", "matplotlib"}


@pytest.mark.slow
def test_a_launcher_hands_its_run_over_before_it_imports_what_draws_searches_and_reports() -> None:
    parts = "launch, tracking.jobs.plan, tracking.jobs.queues, tracking.jobs.search, tracking.machine.stacks"
    command = f"import {parts}, sys; from tracking.store import server; server.option_uri(None); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, env=environment(), capture_output=True, text=True,
        timeout=HANGS_SEC, check=True,
    )  # fmt: skip
    later = {"numpy", "scipy", "matplotlib", "urllib3", "xml.etree.ElementTree", "rich.progress", "optuna"}
    later |= {"tracking.analysis.report", "tracking.analysis.published", "tracking.analysis.mlperf"}
    assert not later & {*done.stdout.split()}


def test_a_module_of_ours_is_named_through_its_installation() -> None:
    """Where all lies in the package `timetrial`, another string would name a module that is not there."""
    modules = {module(path) for path in FILES}
    for path in FILES:
        if name(path) in ("tracking/base/installation.py", "tracking/base/old_paths.py"):
            continue
        nodes = nodes_of(path)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        asked = {id(argument) for call in calls if ast.unparse(call.func).endswith("module") for argument in call.args}
        named = [node for node in nodes if isinstance(node, ast.Constant) and node.value in modules]
        wrong = [node.value for node in named if "." in node.value and id(node) not in asked]
        assert not wrong, f"{name(path)}: say installation.module({wrong[0]!r})"


def test_a_home_is_looked_up_in_one_place() -> None:
    """pathlib's function ends in a traceback for a user that the machine does not know."""
    own = [
        name(path)
        for path in FILES
        if any(isinstance(node, ast.Attribute) and "expanduser" in node.attr for node in nodes_of(path))
    ]
    assert own == ["tracking/base/paths.py"], "use with_home"
