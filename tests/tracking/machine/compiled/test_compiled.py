"""What was compiled, carried from one machine's folders to another's."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tracking.machine.compiled import contents, export, identity, import_file, importing
from tracking.record import signature

HERE = {
    "env.stack_id": "aaaa", "env.python": "3.11.2", "env.gpu": "NVIDIA H100", "env.cpu": "Xeon", "env.torch": "2.15.0",
}  # fmt: skip
FILES = {
    "inductor/ab/cabc.py": b"code",
    "inductor/xs/cxs.main.so": b"\x7fELF",
    "inductor/fxgraph/35/f35/g44": b"pickle",
    "triton/KEY/kernel.cubin": b"cubin",
}
LEFT = ("inductor/locks/cabc.lock", "triton/KEY/lock", "triton/KEY/tmp.pid_1_x/kernel.ptx")
Folders = dict[str, Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose signing key is this test's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Those of a machine that has compiled."""
    made = {root: tmp_path / "here" / root for root in contents.ROOTS}
    for name, content in (FILES | dict.fromkeys(LEFT, b"")).items():
        write(made, name, content)
    group = {"kernel.cubin": str(made["triton"] / "KEY/kernel.cubin")}
    write(made, "triton/KEY/__grp__kernel.json", json.dumps({"child_paths": group}).encode())
    return made


@pytest.fixture
def there(tmp_path: Path) -> Folders:
    return {root: tmp_path / "there" / root for root in contents.ROOTS}


@pytest.fixture
def file(tmp_path: Path, folders: Folders) -> Path:
    export(tmp_path / "compiled.zip", folders, HERE)
    return tmp_path / "compiled.zip"


def write(folders: Folders, name: str, content: bytes) -> None:
    root, _, path = name.partition("/")
    place = folders[root] / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def held(folders: Folders) -> dict[str, bytes]:
    """All files below, by name; also what an import would leave behind."""
    return {
        f"{root}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for root, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_other_machine_has_the_same_files_for_this_user_alone(file: Path, there: Folders) -> None:
    listed, num_new = import_file(file, there, HERE, trust=False)
    got = held(there)
    group = json.loads(got.pop("triton/KEY/__grp__kernel.json"))
    assert group == {"child_paths": {"kernel.cubin": str(there["triton"] / "KEY/kernel.cubin")}}
    assert got == FILES
    assert num_new == len(listed) == len(FILES) + 1
    modes = {stat.S_IMODE(path.stat().st_mode) for folder in there.values() for path in [folder, *folder.rglob("*")]}
    assert modes == {0o600, 0o700}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.filterwarnings("ignore")
def test_triton_finds_a_group_where_it_was_put(file: Path, there: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    import_file(file, there, HERE, trust=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(there["triton"]))
    group = cache.FileCacheManager("KEY").get_group("kernel.json")
    assert {name: Path(path).read_bytes() for name, path in group.items()} == {"kernel.cubin": b"cubin"}


def test_what_is_there_stays_and_a_second_import_changes_nothing(file: Path, there: Folders) -> None:
    write(there, "inductor/ab/cabc.py", b"own")
    assert import_file(file, there, HERE, trust=False)[1] == len(FILES)
    before = held(there)
    assert before["inductor/ab/cabc.py"] == b"own"
    assert import_file(file, there, HERE, trust=False)[1] == 0
    assert held(there) == before


OTHERS = {"env.stack_id": "bbbb", "env.gpu": "NVIDIA H200", "env.python": "3.12.1", "env.torch": "2.6"}


@pytest.mark.parametrize("tag", OTHERS)
def test_another_stack_or_gpu_is_refused_by_name(file: Path, there: Folders, tag: str) -> None:
    with pytest.raises(ValueError, match=f"{tag} is {HERE[tag]} there and {OTHERS[tag]} here") as refused:
        import_file(file, there, HERE | {tag: OTHERS[tag]}, trust=True)
    assert str(file) in str(refused.value)
    assert not held(there)


def test_machine_code_for_another_cpu_is_left_out(file: Path, there: Folders) -> None:
    assert import_file(file, there, HERE | {"env.cpu": "EPYC"}, trust=False)[1] == len(FILES)
    assert "inductor/xs/cxs.main.so" not in held(there)


def test_without_a_gpu_another_cpu_is_refused(tmp_path: Path, folders: Folders, there: Folders) -> None:
    ours = HERE | {"env.gpu": "none"}
    export(tmp_path / "cpu", folders, ours)
    with pytest.raises(ValueError, match=r"env.cpu is Xeon there and EPYC here"):
        import_file(tmp_path / "cpu", there, ours | {"env.cpu": "EPYC"}, trust=False)


def test_a_machine_that_is_not_known_cannot_be_told_from_others() -> None:
    assert identity(HERE | {"env.node": "n1"}) == HERE
    with pytest.raises(ValueError, match=r"env.gpu: not known"):
        identity({key: value for key, value in HERE.items() if key != "env.gpu"})


def test_what_somebody_else_made_is_refused_unless_it_is_trusted(
    file: Path, there: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
    with pytest.raises(ValueError, match=r"was not exported by you .* add --trust"):
        import_file(file, there, HERE, trust=False)
    assert not held(there)
    assert import_file(file, there, HERE, trust=True)[1] == len(FILES) + 1


def test_where_nothing_was_compiled_there_is_nothing_to_export(tmp_path: Path, there: Folders) -> None:
    with pytest.raises(ValueError, match="no compiled code found"):
        export(tmp_path / "none", there, HERE)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [b"", b'{"child_paths": {"kern', b"\xff\xfe", b"[" * 100_000, b"[]"])
def test_a_torn_group_is_named_with_what_to_do(
    tmp_path: Path, folders: Folders, there: Folders, content: bytes
) -> None:
    group = folders["triton"] / "KEY/__grp__kernel.json"
    group.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(group))}: is not a Triton group\. Next: remove it"):
        export(tmp_path / "torn.zip", folders, HERE)
    assert not (tmp_path / "torn.zip").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "with_names", lambda _: content)
        export(tmp_path / "torn.zip", folders, HERE)
    with pytest.raises(ValueError, match=r"torn\.zip: is damaged: .*__grp__kernel\.json: is not a Triton group"):
        import_file(tmp_path / "torn.zip", there, HERE, trust=False)
    assert not held(there)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.99])
def test_a_torn_file_is_refused_and_leaves_nothing(file: Path, there: Folders, kept: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"is damaged|is not an export"):
        import_file(file, there, HERE, trust=False)
    assert not held(there)


def test_a_content_that_was_changed_is_refused(file: Path, there: Folders) -> None:
    remade(file, parts={"inductor/fxgraph/35/f35/g44": b"Pickle"})
    with pytest.raises(ValueError, match="g44 has another content than its manifest says"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


def remade(
    file: Path, change: Callable[[dict[str, Any]], None] = lambda _: None, parts: Mapping[str, bytes] | None = None
) -> None:
    """Make the file anew with a manifest that was changed and signed, and with other or further members."""
    with zipfile.ZipFile(file) as archive:
        all_parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(all_parts[contents.MANIFEST])
    change(manifest)
    all_parts[contents.MANIFEST] = json.dumps(manifest).encode()
    all_parts[contents.SIGNATURE] = (signature.sign(manifest) or "").encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (all_parts | (parts or {})).items():
            archive.writestr(name, content)


def test_what_unpacks_to_more_than_its_manifest_says_is_cut_off(file: Path, there: Folders) -> None:
    remade(file, parts={"inductor/ab/cabc.py": b" " * 2**28})
    assert file.stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"cabc.py has another content than its manifest says"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


def test_a_manifest_that_unpacks_to_more_than_any_has_is_refused(
    file: Path, there: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST_MANIFEST_BYTES", 1000)
    remade(file, lambda manifest: manifest.update(more=" " * 2000))
    with pytest.raises(ValueError, match=r"manifest.json has more than 1000 bytes"):
        import_file(file, there, HERE, trust=True)


@pytest.mark.parametrize("name", ["inductor/not/listed", "../outside", "/etc/outside"])
def test_members_that_no_manifest_lists_are_refused(file: Path, there: Folders, name: str) -> None:
    remade(file, parts={name: b"x"})
    with pytest.raises(ValueError, match="is not in its manifest"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


def test_a_name_that_is_a_file_and_a_folder_is_refused_as_damaged(file: Path, there: Folders) -> None:
    empty = [0, hashlib.sha256(b"").hexdigest()]
    names = ("inductor/a", "inductor/a/b")
    remade(file, lambda manifest: manifest["files"].update(dict.fromkeys(names, empty)), dict.fromkeys(names, b""))
    with pytest.raises(ValueError, match=r"is damaged: inductor/a is a file and a folder\. Next: export it again"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


def test_a_link_is_no_more_than_its_content(file: Path, there: Folders) -> None:
    """A zip marks one in the mode of a member, which nothing here looks at."""
    target = b"/etc/passwd"

    def listed(manifest: dict[str, Any]) -> None:
        manifest["files"]["inductor/link"] = [len(target), hashlib.sha256(target).hexdigest()]

    remade(file, listed)
    with zipfile.ZipFile(file, "a") as archive:
        link = zipfile.ZipInfo("inductor/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, target)
    import_file(file, there, HERE, trust=True)
    assert not (there["inductor"] / "link").is_symlink()
    assert (there["inductor"] / "link").read_bytes() == target


def test_a_member_that_comes_twice_is_refused(file: Path, there: Folders) -> None:
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr("inductor/ab/cabc.py", b"code")
    with pytest.raises(ValueError, match="is not in its manifest"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../x", "inductor/../../x", "inductor//x", "inductor/./x", "inductor", "other/x",
        "inductor/a\nb", "inductor/.hidden", "inductor/", "", "inductor/locks/x", "inductor/" + "x" * 300,
        "inductor/.", "inductor/..",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(file: Path, there: Folders, name: str) -> None:
    remade(file, lambda manifest: manifest["files"].update({name: [0, "0" * 64]}))
    with pytest.raises(ValueError, match=r"is not an export of compiled code: .* is not a file of a compiler"):
        import_file(file, there, HERE, trust=True)
    assert not held(there)


@pytest.mark.parametrize("size", [-1, 1.5, None, contents.MOST_FILE_BYTES + 1, True])
def test_sizes_out_of_bounds_are_refused(file: Path, there: Folders, size: Any) -> None:
    remade(file, lambda manifest: manifest["files"].update({"inductor/x": [size, "0" * 64]}))
    with pytest.raises(ValueError, match="its size or digest is not valid"):
        import_file(file, there, HERE, trust=True)


def test_more_than_the_bound_of_all_files_is_refused(file: Path, there: Folders) -> None:
    many = {f"inductor/x{number}": [contents.MOST_FILE_BYTES, "0" * 64] for number in range(17)}
    remade(file, lambda manifest: manifest["files"].update(many))
    with pytest.raises(ValueError, match="more than 68719476736 bytes"):
        import_file(file, there, HERE, trust=True)


@pytest.mark.parametrize("manifest", [[], {"format": 2}, {"format": 1, "identity": {}}, {"format": 1, "files": {}}])
def test_another_manifest_is_refused(file: Path, there: Folders, manifest: Any) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in (contents.MANIFEST, contents.SIGNATURE):
            archive.writestr(name, json.dumps(manifest))
    with pytest.raises(ValueError, match="is not an export of compiled code: "):
        import_file(file, there, HERE, trust=True)


def test_a_group_that_names_files_elsewhere_is_refused(
    tmp_path: Path, folders: Folders, there: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "with_names", lambda _: b'{"child_paths": {"kernel.cubin": "../../x"}}')
    export(tmp_path / "file", folders, HERE)
    with pytest.raises(ValueError, match="not a file of its folder"):
        import_file(tmp_path / "file", there, HERE, trust=True)
    assert not held(there)


def test_what_is_no_export_at_all_is_refused(tmp_path: Path, there: Folders) -> None:
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path / "missing", there, HERE, trust=False)
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(ValueError, match="is damaged"):
        import_file(tmp_path / "text", there, HERE, trust=False)
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("x", b"")
    with pytest.raises(ValueError, match=r"is not an export of compiled code: manifest.json is missing"):
        import_file(tmp_path / "zip", there, HERE, trust=False)
    (tmp_path / "link").symlink_to(tmp_path / "zip")
    with pytest.raises(OSError, match="is a link"):
        import_file(tmp_path / "link", there, HERE, trust=False)


def test_what_an_import_that_was_killed_has_left_is_removed(
    file: Path, there: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not what an import on another host is at, whose processes are not seen here."""
    monkeypatch.setattr("socket.gethostname", lambda: "node-1.local")
    owners = (f"node_1_local-{2**22 + 1}", f"node_1_local-{os.getppid()}", f"node_2_local-{2**22 + 1}")
    dead, alive, of_another = (there["inductor"] / f"{contents.STAGING}{owner}-x" for owner in owners)
    for folder in (dead, alive, of_another):
        (folder / "ab").mkdir(parents=True)
    import_file(file, there, HERE, trust=False)
    assert not dead.exists()
    assert alive.exists()
    assert of_another.exists()


def test_two_nodes_with_one_process_number_import_side_by_side(
    file: Path, there: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two containers on one home, whose only process is number 7."""
    copy, nested = importing._copy, {**there, "inductor": tmp_path / "other"}

    def copy_beside(*arguments: Any) -> None:
        monkeypatch.setattr(importing, "_copy", copy)
        import_file(file, nested, HERE, trust=False)
        copy(*arguments)

    monkeypatch.setattr(importing, "_copy", copy_beside)
    import_file(file, there, HERE, trust=False)
    assert (there["inductor"] / "ab/cabc.py").read_bytes() == b"code"
    assert not [left for folder in there.values() for left in folder.glob(f"{contents.STAGING}*")]


def test_whatever_byte_is_wrong_the_file_is_refused_or_whole(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    rng = random.Random(1)
    refusals = []
    for number in range(300):
        changed = bytearray(content)
        changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(bytes(changed))
        there = {root: tmp_path / str(number) / root for root in contents.ROOTS}
        try:
            import_file(file, there, HERE, trust=False)
        except ValueError as error:
            refusals.append(str(error))
        got = held(there)
        assert not got or {name: got[name] for name in FILES} == FILES
    assert len(refusals) > 200
    assert all(str(file) in words for words in refusals)
