"""Finds, fetches and identifies the image of a stack's container.

An image is run by its id, never by a name, which may later belong to another image.

CACHE/images/DIGEST.sif|sqsh  images of apptainer or enroot, by a digest of the image's name and the architecture;
                              DIGEST.json beside them, or for a user's file, keeps its digest, which takes a while to
                              compute
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError, StackConfig
from tracking.base.paths import with_home
from tracking.base.secrets import redact
from tracking.machine.environment import cache, is_trusted, private_folder
from tracking.machine.stacks.engines import ENGINES, PREFIX, Engine
from tracking.record import documents

ASK_SEC = 60.0  # limit for a local answer of the engine
REACH_SEC = 60.0  # limit for an answer of a registry
ROOM_BYTES = 20 * 10**9  # an image of PyTorch with CUDA, unpacked (7 to 18 GB), and its layers meanwhile
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # Linux's names of architectures, and those of images
ABSENT = ("no such image", "image not known", "no such object")  # docker's and podman's errors for a missing image
SUFFIXES = {"apptainer": "sif", "singularity": "sif", "enroot": "sqsh", "pyxis": "sqsh"}
MAX_WORDS = 300  # characters of an engine's output in an error


@dataclass(frozen=True)
class Image:
    """A local image. `run` is its id or file; `digest` (sha256:...) and `architecture` are None if not known."""

    run: str
    digest: str | None
    architecture: str | None = None
    size_bytes: int | None = None


def engine(stack: StackConfig) -> Engine:
    """The stack's engine. Raises ConfigError if it is unknown or not installed."""
    name = stack.container.engine
    if name not in ENGINES:
        raise ConfigError(
            f"stack={stack.name}: stack.container.engine={name}: no such engine. Allowed: {', '.join(ENGINES)}"
        )
    if program := missing(ENGINES[name]):
        installed = [other.name for other in ENGINES.values() if not missing(other)]
        other = f", or give an installed one: {', '.join(installed)}" if installed else ""
        prefix = "" if program == name else f"{program} "
        raise ConfigError(
            f"stack={stack.name}: stack.container.engine={name}: {prefix}is not installed (not on the PATH). Next:"
            f" install it{other}"
        )
    return ENGINES[name]


def missing(its_engine: Engine) -> str:
    """The first program of the engine that is not installed; empty if all are."""
    return next((program for program in its_engine.programs if shutil.which(program) is None), "")


def ask(stack: StackConfig, words: list[str], seconds: float | None = ASK_SEC) -> subprocess.CompletedProcess[str]:
    """Run a command of the stack's engine. Raises ConfigError if it cannot start or does not end in time."""
    command = [engine(stack).programs[0], *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"stack={stack.name}: `{' '.join(command[:3])}` gave no answer in {seconds:g} s. Next: check its service"
        ) from None
    except OSError as error:
        raise ConfigError(f"stack={stack.name}: {command[0]} cannot start: {error}. Next: install it again") from error


def last_words(text: str) -> str:
    """The end of an engine's output, which says why it failed, in one line and without secrets."""
    return redact(" ".join(text.split()))[-MAX_WORDS:] or "no message"


def version(stack: StackConfig) -> str:
    """The engine's version, such as `podman 4.3.1`. Raises ConfigError if it does not answer."""
    process = ask(stack, engine(stack).version)
    if process.returncode:
        raise ConfigError(
            f"stack={stack.name}: {stack.container.engine} does not answer (exit code {process.returncode}:"
            f" {last_words(process.stderr)}). Next: start its service, or give this user access to it"
        )
    number = process.stdout.split()[-1] if process.stdout.split() else ""
    return f"{stack.container.engine} {number}".strip()


def find(stack: StackConfig) -> Image | None:
    """The stack's local image; None if it is missing. Raises ConfigError if that is not known."""
    name = stack.container.image or ""
    if not engine(stack).stores:
        path = file_of(stack)
        here = path.exists() and is_trusted(path)
        return Image(str(path), file_digest(path), size_bytes=size(path)) if here else None
    process = ask(stack, ["image", "inspect", name])
    if process.returncode:
        if any(words in process.stderr.lower() for words in ABSENT):
            return None
        raise ConfigError(
            f"stack={stack.name}: {stack.container.engine} cannot look up stack.container.image={name} (exit code"
            f" {process.returncode}: {last_words(process.stderr)}). Next: try `{stack.container.engine} image inspect"
            f" {name}`"
        )
    try:
        return inspected(name, process.stdout)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"stack={stack.name}: {stack.container.engine}'s description of the image {name} is malformed ({error!r})"
        ) from error


def inspected(name: str, text: str) -> Image:
    """The image from the output of docker's or podman's `image inspect`.

    The digest is the requested one, else that of the manifest, which identifies the image in its registry. An image
    that docker built here has only its id.
    """
    facts = json.loads(text)[0]
    known = [str(each).rpartition("@")[2] for each in facts.get("RepoDigests") or []]
    image_id = str(facts["Id"])
    image_id = image_id if image_id.startswith("sha256:") else f"sha256:{image_id}"
    requested = name.rpartition("@")[2] if "@sha256:" in name else None
    digest = requested or facts.get("Digest") or (known[0] if known else image_id)
    return Image(image_id, digest, facts.get("Architecture") or None, facts.get("Size"))


def file_of(stack: StackConfig) -> Path:
    """The file of an image for an engine without a store: the named file, or the one in the cache."""
    name = stack.container.image or ""
    if not name.startswith(PREFIX):
        return with_home(name).absolute()
    digest = hashlib.sha256(f"{name} {platform.machine()}".encode()).hexdigest()[:16]  # machines may share a cache
    return cache() / "images" / f"{digest}.{SUFFIXES[engine(stack).name]}"


def size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def file_digest(path: Path) -> str | None:
    """The sha256 of a file, cached by its size and time, since gigabytes take seconds; None for a folder."""
    if not path.is_file():
        return None
    facts = path.stat()
    identity = [str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino]
    kept = cache() / "images" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = documents.read_json(kept)
        if known["seen"] == identity and is_trusted(kept):
            return str(known["digest"])
    with path.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # Without a writable cache it is computed again.
        private_folder(kept.parent.name)
        documents.write_json(kept, {"seen": identity, "digest": digest})
    return digest


def check_name(stack: StackConfig) -> None:
    """Raise ConfigError for a path without a file, which cannot be fetched."""
    name = stack.container.image or ""
    if not engine(stack).stores and not name.startswith(PREFIX):
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name}: no such file. Next: give the path of an image, or"
            f" {PREFIX}NAME:TAG"
        )


def check_reach(stack: StackConfig) -> bool:
    """Whether a missing image was found in its registry; False if the engine cannot check. Raises ConfigError."""
    name, its_engine = stack.container.image or "", engine(stack)
    if its_engine.reach is None:
        return False
    process = ask(stack, its_engine.reach(name), REACH_SEC)
    if process.returncode:
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name}: is not here, and cannot be reached (exit code"
            f" {process.returncode}: {last_words(process.stderr)}). Next: correct the name, build or load it, or give"
            " this machine access to its registry"
        )
    return True


def check_architecture(stack: StackConfig, image: Image) -> None:
    """Raise ConfigError for an image of another architecture than this machine's."""
    architecture = MACHINES.get(platform.machine(), platform.machine())
    if image.architecture not in (None, architecture):
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={stack.container.image}: is built for {image.architecture},"
            f" and this machine is {architecture}. Next: give an image for {architecture}"
        )


def store(stack: StackConfig) -> Path:
    """The folder in which the stack's image is, or will be, kept."""
    its_engine = engine(stack)
    if not its_engine.room:
        return cache() / "images"
    return Path(ask(stack, its_engine.room).stdout.strip() or "/")


def pull(stack: StackConfig) -> Image:
    """Fetch the stack's image and return it. Raises ConfigError."""
    name, its_engine = stack.container.image or "", engine(stack)
    process = (
        ask(stack, its_engine.pull(name, ""), None)
        if its_engine.stores
        else pull_file(stack, its_engine, file_of(stack))
    )
    image = find(stack) if process.returncode == 0 else None
    if image is None:
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name} cannot be fetched (exit code {process.returncode}:"
            f" {last_words(process.stderr)}). Next: correct the name, or give this machine access to the registry"
        )
    return image


def pull_file(stack: StackConfig, its_engine: Engine, file: Path) -> subprocess.CompletedProcess[str]:
    """Fetch an image into a file, completely or not at all. Raises ConfigError."""
    from filelock import FileLock

    half = Path(f"{file}.part")
    try:
        private_folder(file.parent.name)
        with FileLock(f"{file}.lock"):  # Two sweeps fetch it once.
            if file.exists():
                return subprocess.CompletedProcess([], 0, "", "")
            half.unlink(missing_ok=True)
            try:
                process = ask(stack, its_engine.pull(stack.container.image or "", str(half)), None)
                if process.returncode == 0:
                    half.rename(file)
            finally:
                half.unlink(missing_ok=True)  # A partial file would use the disk space that was short.
    except OSError as error:
        raise ConfigError(
            f"stack={stack.name}: its image cannot be kept in {file.parent}: {error}. Next: set TIMETRIAL_CACHE to a"
            " folder with free space that you can write to"
        ) from error
    return process
