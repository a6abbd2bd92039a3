"""README and docs are true: links resolve, commands compose, references and quotations are current."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import deploy.native.__main__
import launch
import tracking.__main__
from docs import diagrams, generate_configuration
from tests.project.test_imports import FILES, ROOMS, module, nodes_of, room, rooms_used
from tests.support.composing import EIGHT_GPUS, ROOT, composed, jobs
from tracking.analysis.search import Axis
from tracking.jobs.plan.run_setup import params
from tracking.jobs.search.axes import axis_of
from tracking.machine.environment.fingerprint import EXPECTABLE
from tracking.record import run_folder
from tracking.request import checks
from tracking.request.command_line.arguments import hydra_arguments

DOCS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
RUN_RECORD = (ROOT / "docs" / "run-record.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?:\[[^\]]*\]\(|^\[[^\]\n]+\]: )([^)\s]+)", re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def commands() -> Iterator[tuple[str, list[str]]]:
    """File and words of every command in README and docs."""
    for path in DOCS:
        for language, block in FENCE.findall(path.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines() if language in ("bash", "sh") else ():
                for command in re.split(r"&&", line):
                    if words := shlex.split(command, comments=True):
                        yield name(path), words


@pytest.mark.parametrize("path", DOCS, ids=name)
def test_nothing_is_left_to_be_filled_in(path: Path) -> None:
    assert not re.findall(r"\b(?:MEASURED|TODO|TBD|FIXME|XXX)\b", prose(path))


def test_the_readme_fits_one_screen() -> None:
    """Its picture, tables and code aside."""
    lines = [line for line in prose(ROOT / "README.md").splitlines() if not line.startswith("|")]
    assert len(" ".join(lines).split()) <= 450


def behind(word: str) -> list[tuple[str, list[str]]]:
    """File and what comes behind `word`, of every command that has it."""
    return [(file, words[words.index(word) + 1 :]) for file, words in commands() if word in words]


INSTALLED = [(file, words[1:]) for file, words in commands() if words[0] == "timetrial"]
LAUNCHES = behind("launch.py") + [(file, words[1:]) for file, words in INSTALLED if words[0] == "run"]


def slug(heading: str) -> str:
    """The anchor that a heading gets (GitHub's rule)."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_every_page_is_in_the_sites_navigation() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ +- .+: ([\w/.-]+\.md)$", site, re.MULTILINE))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= named


def test_each_diagram_is_drawn_for_the_site_as_it_is_now() -> None:
    pictures = {diagrams.picture(source) for source in diagrams.blocks()}
    assert pictures == {*(ROOT / "docs/images").glob("diagram-*.svg")}, "draw them: python -m docs.diagrams"
    for path in [path for path in DOCS if path.parent != ROOT / "docs"]:
        assert "```mermaid" not in path.read_text(encoding="utf-8"), "the site would show its source"


def test_the_index_of_results_names_every_study_by_its_title() -> None:
    results = ROOT / "docs" / "results"
    index = (results / "README.md").read_text(encoding="utf-8")
    for path in results.glob("20*.md"):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        assert f"[{title}]({path.name})" in index


@pytest.mark.parametrize("path", DOCS, ids=name)
def test_links_resolve(path: Path) -> None:
    for link in LINK.findall(prose(path)):
        file, _, anchor = link.partition("#")
        if re.match(r"\w+:", file):
            continue
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in map(slug, re.findall(r"^#+ (.*)$", prose(target), re.MULTILINE)), link


def with_all_values(asked: list[list[str]]) -> Iterator[list[str]]:
    """The jobs that bring a value of an axis for the first time. All products would take minutes."""
    seen: set[str] = set()
    for job in asked:
        if not seen.issuperset(job) or not job:
            seen.update(job)
            yield job


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "words"),
    [
        # Measured results name the commands of their day; what users type stands on the other pages.
        pytest.param(*asked, marks=[pytest.mark.exhaustive] * asked[0].startswith("docs/results/"))
        for asked in LAUNCHES
    ],
    ids=[f"{file}: {' '.join(words)}" for file, words in LAUNCHES],
)
def test_launch_commands_compose_and_pass_the_checks(file: str, words: list[str]) -> None:
    """On a machine with eight H200s, where every command in the docs can run."""
    config_dir = None
    overrides = []
    multirun = False
    rest = iter(words)
    for word in rest:
        if word == "--config-dir":
            config_dir = ROOT / next(rest)
        elif word == "--cfg":
            assert next(rest) == "job"
        elif word == "-sc":
            assert next(rest) == "install=bash"
        elif word in ("-m", "--multirun"):
            multirun = True
        elif word != "--help":
            overrides.append(word)
    overrides = hydra_arguments([*["-m"] * multirun, *overrides])[multirun:]
    axes = launch.axes_of(overrides)
    for axis in axes:
        Axis(**axis_of(axis, *launch.parsed_axis(axis)))
    asked = list(jobs([word for word in overrides if word not in axes]))
    assert len(asked) == 1 or multirun
    for job in with_all_values(asked):
        checks.check_run(composed(job, config_dir), EIGHT_GPUS)


def test_there_are_commands_to_check() -> None:
    assert len(LAUNCHES) > 20
    assert any(not words for _, words in LAUNCHES)
    assert any("-m" in words for _, words in LAUNCHES)


def test_tracking_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    asked = behind("tracking") + [(file, words) for file, words in INSTALLED if words[0] != "run"]
    named = {words[0] for _, words in asked if not words[0].startswith("-")}
    assert named == {
        "audit",
        "cache",
        "ceilings",
        "diff",
        "doctor",
        "fingerprint",
        "gate",
        "import",
        "mlperf",
        "report",
        "stacks",
        "sync",
        "watch",
    }
    for command in named:
        with pytest.raises(SystemExit) as ended:
            tracking.__main__.main([command, "--help"])
        assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_commands_of_the_server_parse() -> None:
    commands = [words for _, words in behind("deploy.native")]
    assert len(commands) > 12
    for words in commands:
        deploy.native.__main__.parser().parse_args(words)


def test_python_files_that_commands_run_exist() -> None:
    for _, words in commands():
        for word in words:
            if word.endswith(".py"):
                assert (ROOT / word).is_file(), word


def test_the_configuration_reference_is_current() -> None:
    written = generate_configuration.TARGET.read_text(encoding="utf-8")
    assert written == generate_configuration.render(), "write it anew: python -m docs.generate_configuration"


def test_quoted_files_are_quoted_as_they_are() -> None:
    example = ROOT / "docs" / "examples" / "own_workload"
    text = (ROOT / "docs" / "adding-a-workload.md").read_text(encoding="utf-8")
    quoted = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    files = {path.relative_to(example).as_posix() for path in example.rglob("*") if path.suffix in (".py", ".yaml")}
    assert quoted.keys() == files
    for file, content in quoted.items():
        assert content == (example / file).read_text(encoding="utf-8"), file


@pytest.mark.parametrize("path", [*DOCS, *(ROOT / "docs").rglob("*.py")], ids=name)
def test_no_path_of_one_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert not re.findall(r"(?<![\w.~/])/(?:home|root|tmp|work|Users)/\S*", text)


def literals(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def section(heading: str) -> set[str]:
    """What stands in backticks under a heading of docs/run-record.md."""
    text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", RUN_RECORD, re.MULTILINE | re.DOTALL)
    assert text, heading
    return set(re.findall(r"`([^`\s]+)`", text[1]))


def test_the_lists_of_params_tags_and_failures_are_those_of_the_code() -> None:
    config = checks.check_run(composed(["limit_train_batches=1"]), [])
    documented = section("Params")
    assert {key for key in params(config) if not key.startswith("hparams/")} <= documented
    assert {f"env.{key}" for key in EXPECTABLE} <= section("Tags")
    in_code = {text for text in literals("tracking") if re.fullmatch(r"(env|git)\.[a-z_]+", text)}
    assert in_code <= section("Tags")
    assert {"oom", "nan", "timeout", "bad_input", "error"} <= section("Kinds of failure")


def test_the_run_folders_files_are_documented() -> None:
    constants = {key: value for key, value in vars(run_folder).items() if key.isupper() and isinstance(value, str)}
    files = {value.replace("{rank}", "<N>") for value in constants.values() if value != ".."}  # a sweep's folder
    assert files <= section("The run folder")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=name)
def test_commits_are_named_beside_results_alone(path: Path) -> None:
    """What was measured at a commit stands under docs/results; other pages would age with each commit they name."""
    words = re.findall(r"(?<![\w.-])[0-9a-f]{7}\b", prose(path))
    assert not [word for word in words if re.search(r"\d", word) and re.search(r"[a-f]", word)]


def architecture(heading: str) -> str:
    text = re.search(
        rf"^## {heading}\n(.*?)(?=^## |\Z)",
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
    assert text, heading
    return text[1]


def test_every_room_is_described_in_the_order_of_imports() -> None:
    described = re.findall(r"^\| `([\w.]+)` \| ", architecture("Rooms"), re.MULTILINE)
    assert described == [room for room in ROOMS if room != "tracking.__main__"]


def drawn() -> dict[str, set[str]]:
    """The targets of each floor's arrows in the diagram."""
    arrows = re.findall(r"^ +([\w.]+) --> ([\w. &]+)$", architecture("Rooms"), re.MULTILINE)
    return {floor: set(targets.split(" & ")) for floor, targets in arrows}


def floor_of(room_name: str) -> str:
    """The second part of a room's name; `python -m tracking` is drawn as its commands."""
    layer, _, own = room_name.partition(".")
    floor = own.partition(".")[0]
    return {"": layer, "__main__": "cli"}.get(floor, floor)


def imported() -> dict[str, set[str]]:
    """The same as the code has it."""
    floors: dict[str, set[str]] = {}
    for path in FILES:
        used = {floor_of(used) for used, _, _ in rooms_used(path)}
        floors.setdefault(floor_of(room(module(path))), set()).update(used)
        nodes_of.cache_clear()
    return {name: used - {name} for name, used in floors.items() if used - {name}}


def test_the_diagram_of_the_rooms_is_that_of_the_imports() -> None:
    """Each arrow is an import, and each import goes along arrows."""
    arrows, imports = drawn(), imported()

    def reached(start: str) -> set[str]:
        return arrows.get(start, set()).union(*(reached(target) for target in arrows.get(start, ())))

    assert arrows.keys() == imports.keys()
    for importing, used in imports.items():
        assert arrows[importing] <= used, importing
        assert used <= reached(importing), importing
