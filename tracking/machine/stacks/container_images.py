"""The image of a stack's container: whether it is here, its digest, and how it comes here. It is run by what it is,
never by a name that may mean another one tomorrow.

CACHE/images/DIGEST.sif|sqsh  what apptainer or enroot fetched, by a digest of the image's name; DIGEST.json beside it,
                              or for a file of the user's, its digest, which takes a while to compute
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
from tracking.base.secrets import redact
from tracking.machine.environment import cache, is_trusted, private_folder
from tracking.machine.stacks.engines import ENGINES, PREFIX, Engine
from tracking.record import documents

ASK_SEC = 60.0  # The engine answers from this machine.
REACH_SEC = 60.0  # A registry answers.
ROOM_BYTES = 20 * 10**9  # an image of PyTorch with CUDA, unpacked (7 to 18 GB), and its layers meanwhile
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # Linux's name of an architecture, and that of images
ABSENT = ("no such image", "image not known", "no such object")  # what docker and podman say of an image
SUFFIXES = {"apptainer": "sif", "singularity": "sif", "enroot": "sqsh", "pyxis": "sqsh"}
MAX_WORDS = 300  # characters of an engine's words in an error


@dataclass(frozen=True)
class Image:
    """An image that is here. `run` is its id or file; `digest` (sha256:...) and `architecture` where they are known."""

    run: str
    digest: str | None
    architecture: str | None = None
    size_bytes: int | None = None


def engine(stack: StackConfig) -> Engine:
    """Raises ConfigError for an engine that is none, or not installed."""
    name = stack.container.engine
    if name not in ENGINES:
        raise ConfigError(f"stack={stack.name}: stack.container.engine={name}: allowed: {', '.join(ENGINES)}")
    if lacking := missing(ENGINES[name]):
        there = [other.name for other in ENGINES.values() if not missing(other)]
        other = f", or take one that is here: {', '.join(there)}" if there else ""
        what = "" if lacking == name else f"{lacking} "
        raise ConfigError(
            f"stack={stack.name}: stack.container.engine={name}: {what}is not installed (not on the PATH); install"
            f" it{other}"
        )
    return ENGINES[name]


def missing(own: Engine) -> str:
    """The first program of the engine that is not here, or nothing."""
    return next((program for program in own.programs if shutil.which(program) is None), "")


def ask(stack: StackConfig, words: list[str], seconds: float | None = ASK_SEC) -> subprocess.CompletedProcess[str]:
    """Run a command of the stack's engine. Raises ConfigError where it does not end."""
    command = [engine(stack).programs[0], *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"stack={stack.name}: `{' '.join(command[:3])}` gave no answer in {seconds:g} s; is its service up?"
        ) from None
    except OSError as error:
        raise ConfigError(f"stack={stack.name}: {command[0]} cannot be started: {error}; mend or replace it") from error


def last_words(text: str) -> str:
    """What an engine said last, which is why it failed, in one line and without secrets."""
    return redact(" ".join(text.split()))[-MAX_WORDS:] or "without a word"


def version(stack: StackConfig) -> str:
    """Such as `podman 4.3.1`. Raises ConfigError where the engine does not answer: its service may be down."""
    done = ask(stack, engine(stack).version)
    if done.returncode:
        raise ConfigError(
            f"stack={stack.name}: {stack.container.engine} does not answer (exit code {done.returncode}:"
            f" {last_words(done.stderr)}); start its service, or let this user use it"
        )
    number = done.stdout.split()[-1] if done.stdout.split() else ""
    return f"{stack.container.engine} {number}".strip()


def find(stack: StackConfig) -> Image | None:
    """The stack's image, if it is here. Raises ConfigError where that cannot be told."""
    name = stack.container.image or ""
    if not engine(stack).stores:
        path = file_of(stack)
        here = path.exists() and is_trusted(path)
        return Image(str(path), file_digest(path), size_bytes=size(path)) if here else None
    done = ask(stack, ["image", "inspect", name])
    if done.returncode:
        if any(words in done.stderr.lower() for words in ABSENT):
            return None
        raise ConfigError(
            f"stack={stack.name}: {stack.container.engine} does not tell whether stack.container.image={name} is here"
            f" (exit code {done.returncode}: {last_words(done.stderr)})"
        )
    try:
        return inspected(name, done.stdout)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"stack={stack.name}: what {stack.container.engine} says of the image {name} cannot be read ({error!r})"
        ) from error


def inspected(name: str, text: str) -> Image:
    """Read docker's or podman's `image inspect`.

    The digest is the one that was asked for, else the manifest's, by which anybody gets the image from its registry;
    of an image that was built here and that docker keeps, there is only its own.
    """
    facts = json.loads(text)[0]
    known = [str(each).rpartition("@")[2] for each in facts.get("RepoDigests") or []]
    own = str(facts["Id"])
    own = own if own.startswith("sha256:") else f"sha256:{own}"
    asked = name.rpartition("@")[2] if "@sha256:" in name else None
    digest = asked or facts.get("Digest") or (known[0] if known else own)
    return Image(own, digest, facts.get("Architecture") or None, facts.get("Size"))


def file_of(stack: StackConfig) -> Path:
    """The file of an image of an engine without a store: the one that is named, or where it is fetched to."""
    name = stack.container.image or ""
    if not name.startswith(PREFIX):
        return Path(name).expanduser().absolute()
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return cache() / "images" / f"{digest}.{SUFFIXES[engine(stack).name]}"


def size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def file_digest(path: Path) -> str | None:
    """sha256 of a file, kept by its size and time: that of gigabytes takes seconds. None for a folder."""
    if not path.is_file():
        return None
    facts = path.stat()
    seen = [str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino]
    kept = cache() / "images" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = documents.read_json(kept)
        if known["seen"] == seen and is_trusted(kept):
            return str(known["digest"])
    with path.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # a cache that cannot be written to: it is computed again
        private_folder(kept.parent.name)
        documents.write_json(kept, {"seen": seen, "digest": digest})
    return digest


def check_name(stack: StackConfig) -> None:
    """Raise ConfigError for an image that is not here and that nothing can fetch: the path of no file."""
    name = stack.container.image or ""
    if not engine(stack).stores and not name.startswith(PREFIX):
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name}: no such file; give the path of an image, or"
            f" {PREFIX}NAME:TAG"
        )


def check_reach(stack: StackConfig) -> bool:
    """Whether an image that is not here was seen in its registry. Raises ConfigError where it cannot be had.

    False where the engine can only try to fetch it.
    """
    name, own = stack.container.image or "", engine(stack)
    if own.reach is None:
        return False
    done = ask(stack, own.reach(name), REACH_SEC)
    if done.returncode:
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name}: is not here, and cannot be reached (exit code"
            f" {done.returncode}: {last_words(done.stderr)}); correct the name, build or load it, or let this machine"
            " reach its registry"
        )
    return True


def check_architecture(stack: StackConfig, image: Image) -> None:
    """Raise ConfigError for an image of another architecture than this machine's."""
    own = MACHINES.get(platform.machine(), platform.machine())
    if image.architecture not in (None, own):
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={stack.container.image}: is built for {image.architecture},"
            f" and this machine is {own}; give an image for {own}"
        )


def store(stack: StackConfig) -> Path:
    """Where the stack's image is kept, or will be."""
    own = engine(stack)
    if not own.room:
        return cache() / "images"
    return Path(ask(stack, own.room).stdout.strip() or "/")


def pull(stack: StackConfig) -> Image:
    """Fetch the stack's image, and say what it is. Raises ConfigError."""
    name, own = stack.container.image or "", engine(stack)
    done = ask(stack, own.pull(name, ""), None) if own.stores else pull_file(stack, own, file_of(stack))
    image = find(stack) if done.returncode == 0 else None
    if image is None:
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={name} cannot be fetched (exit code {done.returncode}:"
            f" {last_words(done.stderr)})"
        )
    return image


def pull_file(stack: StackConfig, own: Engine, file: Path) -> subprocess.CompletedProcess[str]:
    """Fetch an image into a file, which is there whole or not at all. Raises ConfigError."""
    from filelock import FileLock

    half = Path(f"{file}.part")
    try:
        private_folder(file.parent.name)
        with FileLock(f"{file}.lock"):  # Only one of two sweeps that need it fetches it.
            half.unlink(missing_ok=True)
            try:
                done = ask(stack, own.pull(stack.container.image or "", str(half)), None)
                if done.returncode == 0:
                    half.rename(file)
            finally:
                half.unlink(missing_ok=True)  # It would take the room that the whole lacked.
    except OSError as error:
        raise ConfigError(
            f"stack={stack.name}: its image cannot be kept in {file.parent}: {error}; set TIMETRIAL_CACHE to a folder"
            " with room that you can write to"
        ) from error
    return done
