"""Adds an export's compiled code to this machine's folders, if it was compiled for this environment."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tracking.machine.compiled import contents
from tracking.machine.compiled.contents import File
from tracking.record import files, signature

CHUNK_BYTES = 2**20
# zipfile raises one of these, depending on which bytes are wrong.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, NotImplementedError, OverflowError, RuntimeError,
)  # fmt: skip
STACK, GPU, CPU = "env.stack_id", "env.gpu", "env.cpu"
KEYS = (STACK, "env.python", GPU, CPU)  # Python too, since compiled code is pickled
# The parts of a stack's hash, for messages.
DESCRIBED = ("env.torch", "env.cuda", "env.driver", "env.cudnn", "env.nccl", "env.libraries", "env.image")


def import_file(
    source: Path, folders: Mapping[str, Path], of_stack: Mapping[str, str], trust: bool
) -> tuple[dict[str, File], int]:
    """Add the files of `source` that `folders` lack. Returns all its files by name, and the number of new ones.

    All files are read and checked before the first one is put in place. Machine code for another CPU is left out.
    Raises OSError, and ValueError if the file is damaged, made for another stack or GPU, or neither signed by this user
    nor trusted.
    """
    with files.opened(source, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                of_export, listed = _checked(source, archive, of_stack, trust)
                with _staging(folders) as staging:
                    _unpack(archive, listed, staging, folders)
                    of_use = [name for name in listed if of_export == of_stack or not contents.is_machine_code(name)]
                    return listed, _put_into_place(of_use, staging, folders)
        except OSError as error:
            if error.errno not in (errno.EINVAL, None):  # a position before the file's start, and errors of bz2
                error.filename = error.filename or " or ".join(map(str, folders.values()))  # as on a full disk
                raise
            raise _damaged(source, error) from error
        except DAMAGED as error:
            raise _damaged(source, error) from error


def _damaged(source: Path, error: Exception) -> ValueError:
    return ValueError(f"{source}: is damaged: {error}. Next: export it again")


def _checked(
    source: Path, archive: zipfile.ZipFile, of_stack: Mapping[str, str], trust: bool
) -> tuple[dict[str, str], dict[str, File]]:
    """Identity and files of the manifest, after checks of format, identity and signature. Raises ValueError."""
    try:
        manifest = json.loads(_small(archive, contents.MANIFEST, contents.MOST_MANIFEST_BYTES))
        signed = _small(archive, contents.SIGNATURE, contents.MOST_SIGNATURE_BYTES).decode()
        of_export, listed = contents.parsed(manifest)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source}: is not an export of compiled code: {error}") from error
    if words := difference(of_export, of_stack):
        raise ValueError(
            f"{source}: was compiled for another environment: {words}. Next: export it on a machine like this one"
        )
    if not trust and not signature.verify(manifest, signed):
        raise ValueError(
            f"{source}: was not exported by you with this home, or was changed since. Its content is executed. Next:"
            " add --trust if you trust its author"
        )
    return of_export, listed


def _small(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The content of a member. Raises ValueError if it is missing or too large."""
    if name not in archive.namelist():
        raise ValueError(f"{name} is missing")
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} has more than {most} bytes")
    return content


def _unpack(
    archive: zipfile.ZipFile, listed: Mapping[str, File], staging: Mapping[str, Path], folders: Mapping[str, Path]
) -> None:
    """Write every file into `staging`. Raises BadZipFile if one does not match the manifest, or is a folder too."""
    holding = {str(folder) for name in listed for folder in PurePosixPath(name).parents}
    if both := sorted(holding & listed.keys()):
        raise zipfile.BadZipFile(f"{both[0]} is a file and a folder")
    missing = dict(listed)
    for member in archive.infolist():
        if member.filename in (contents.MANIFEST, contents.SIGNATURE):
            continue
        file = missing.pop(member.filename, None)
        if file is None:
            raise zipfile.BadZipFile(f"{member.filename!r} is not in its manifest")
        root, _, path = member.filename.partition("/")
        place = staging[root] / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.opened(place, "xb") as target, archive.open(member) as content:
            os.fchmod(target.fileno(), 0o600)
            _copy(content, target, file, member.filename)
        if place.name.startswith(contents.GROUP):
            try:
                place.write_bytes(contents.with_paths(place.read_bytes(), (folders[root] / path).parent))
            except ValueError as error:
                raise zipfile.BadZipFile(f"{member.filename}: {error}") from None
    if missing:
        raise zipfile.BadZipFile(f"{len(missing)} of {len(listed)} files are missing")


def _copy(content: IO[bytes], target: IO[bytes], file: File, name: str) -> None:
    """Copy a member, at most up to its size in the manifest. Raises BadZipFile if size or digest differ."""
    digest, left = hashlib.sha256(), file.size
    while chunk := content.read(CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            break
        digest.update(chunk)
        target.write(chunk)
    if left or digest.hexdigest() != file.sha256:
        raise zipfile.BadZipFile(f"{name} has another content than its manifest says")


def _put_into_place(names: Iterable[str], staging: Mapping[str, Path], folders: Mapping[str, Path]) -> int:
    """Move missing files into place and return their number. Files that name others come last."""
    num_new = 0
    for name in sorted(names, key=contents.is_last):
        root, _, path = name.partition("/")
        unpacked, place = staging[root] / path, folders[root] / path
        for folder in reversed([above for above in place.parents if above.is_relative_to(folders[root])]):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not place.exists():
            unpacked.rename(place)
            num_new += 1
    return num_new


@contextmanager
def _staging(folders: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """A temporary folder in each of `folders`. Those of this host's killed imports are removed.

    Hosts may share a folder, and do not see each other's processes.
    """
    made = {}
    host = re.sub(r"\W", "_", socket.gethostname())
    of_host = f"{contents.STAGING}{host}-"
    try:
        for root, folder in folders.items():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in folder.glob(f"{of_host}*"):
                if not Path("/proc", left.name.removeprefix(of_host).partition("-")[0]).exists():
                    shutil.rmtree(left, ignore_errors=True)
            made[root] = Path(tempfile.mkdtemp(prefix=f"{of_host}{os.getpid()}-", dir=folder))
        yield made
    finally:
        for path in made.values():
            shutil.rmtree(path, ignore_errors=True)


def identity(tags: Mapping[str, str]) -> dict[str, str]:
    """The fingerprint tags that compiled code depends on. Raises ValueError if one of KEYS is missing."""
    if missing := [key for key in KEYS if key not in tags]:
        raise ValueError(
            f"{', '.join(missing)}: not known on this machine, so compiled code cannot be identified. Next: see"
            " `fingerprint`"
        )
    return {key: tags[key] for key in (*KEYS, *DESCRIBED) if key in tags}


def difference(of_export: Mapping[str, str], of_stack: Mapping[str, str]) -> str:
    """The differences of two identities as text; empty if they can share compiled code."""
    keys = [key for key in dict.fromkeys((*of_stack, *of_export)) if of_export.get(key) != of_stack.get(key)]
    if of_stack[GPU] != "none":  # Then most code is for the GPU. Code for the CPU is left out.
        keys = [key for key in keys if key != CPU]
    named = [key for key in keys if key != STACK] or keys
    sides = ((key, of_export.get(key, "unknown"), of_stack.get(key, "unknown")) for key in named)
    return "; ".join(f"{key} is {exported} there and {local} here" for key, exported, local in sides)
