"""Python sources as a dataset: the chosen files, their messages, and each one's part of the split."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.trainers.data.language.unlisted import unlisted
from trainers.data.language import LanguageData, code
from trainers.data.language.code import environment_folders, sources_in


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    root = tmp_path / "packages"
    for number in range(120):
        path = root / f"package_{number % 5}" / f"module_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def function_{number}():\n    return {number}\n")
    return root


def read(packages: Path, **options: int) -> LanguageData:
    return code(str(packages), tokenizer="bytes", sequence_length=16, **options)


def lines(data: LanguageData) -> list[list[str]]:
    return [line.split("  ") for line in data.record.splitlines()]


def test_each_files_digest_and_part_is_in_the_record(packages: Path) -> None:
    data = read(packages)
    assert len(lines(data)) == 120
    for sha256, part, name in lines(data):
        assert hashlib.sha256((packages.parent / name).read_bytes()).hexdigest() == sha256
        assert part == ("train" if int(sha256[-8:], 16) % 20 else "validation")
    assert [line[0] for line in lines(data)] == sorted(line[0] for line in lines(data))
    assert 0.9 < (data.bytes_per_token or 0) < 1


def test_what_is_twice_or_no_source_is_left_out(packages: Path) -> None:
    before = lines(read(packages))
    (packages / "again.py").write_bytes((packages / "package_0" / "module_0.py").read_bytes())
    (packages / "link.py").symlink_to(packages / "package_0" / "module_5.py")
    (packages / "latin.py").write_bytes("naïve = 1\n".encode("latin-1"))
    (packages / "empty.py").write_text("")
    (packages / "table.py").write_text("x = 1\n" * 100_000)
    (packages / "notes.txt").write_text("none")
    (packages / "__pycache__").mkdir()
    (packages / "__pycache__" / "module.py").write_text("x = 2\n")
    after = lines(read(packages))
    assert {line[0] for line in after} == {line[0] for line in before}


def test_no_more_than_size_is_taken_and_the_same_files_first(packages: Path) -> None:
    few, all_of_them = lines(read(packages, size=2000)), lines(read(packages))
    assert few == all_of_them[: len(few)]
    sizes = [(packages.parent / name).stat().st_size for _, _, name in all_of_them]
    assert sum(sizes[: len(few)]) <= 2000 < sum(sizes[: len(few) + 1])


def test_a_changed_file_makes_the_tokens_anew(packages: Path) -> None:
    before = read(packages).version()
    assert read(packages).version() == before
    (packages / "package_0" / "module_0.py").write_text("x = 3  # another\n")
    assert read(packages).version() != before


def test_too_few_sources_are_refused(packages: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset=code: .*packages has 0 Python sources within .*size=10 bytes"):
        read(packages, size=10)
    (empty := packages.parent / "empty").mkdir()
    with pytest.raises(ConfigError, match=rf"no Python sources in {empty}\. Next: set dataset.path"):
        code(str(empty))
    with pytest.raises(ConfigError, match=r"dataset\.size=0: must be 1 or more"):
        read(packages, size=0)


def test_a_path_that_is_no_folder_is_refused(packages: Path) -> None:
    for path in (packages / "nowhere", packages / "package_0" / "module_0.py"):
        with pytest.raises(
            ConfigError, match=rf"dataset\.path={path}: {path} is not a folder. Next: set dataset\.path to"
        ):
            read(path)


def test_a_folder_that_cannot_be_listed_is_refused_and_passed_over_below(packages: Path) -> None:
    before = lines(read(packages))
    (packages / "locked" / "inner").mkdir(parents=True)
    (packages / "locked" / "inner" / "module.py").write_text("x = 1\n")
    with unlisted(packages / "locked"):
        assert lines(read(packages)) == before
    with unlisted(packages), pytest.raises(ConfigError, match=rf"path={packages}: {packages} cannot be listed \(Perm"):
        read(packages)


def test_names_that_are_not_utf_8_are_in_the_record(packages: Path, tmp_path: Path) -> None:
    (packages / os.fsdecode(b"caf\xe9\n.py")).write_text("coffee = 1\n")
    read(packages).write_record(tmp_path)
    lines = (tmp_path / "data_files.txt").read_bytes().splitlines()
    assert len(lines) == 121
    assert [line for line in lines if line.endswith(b"  packages/caf\xe9\\n.py")]


def test_by_default_it_reads_this_interpreters_library_and_packages() -> None:
    roots = environment_folders()
    sources = sources_in(roots)
    assert any(name.endswith("/json/decoder.py") for name in sources)
    assert {str(Path(sysconfig.get_paths()[key]).resolve()) for key in ("stdlib", "purelib")} <= {*roots}
    assert len({file.path for file in sources.values()}) == len(sources)
