"""Finds the images of a dataset whose folders name the classes; reads no image."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf.schema import ConfigError

EXTENSIONS = (b".jpeg", b".jpg", b".jpe", b".jfif", b".png", b".webp", b".bmp", b".gif")
# Of images that nothing here reads. Other files beside the images, such as lists, are nobody's mistake.
UNREAD = (
    b".apng", b".avif", b".cr2", b".dds", b".dng", b".exr", b".hdr", b".heic", b".heif", b".ico", b".j2k", b".jp2",
    b".jpx", b".jxl", b".nef", b".pbm", b".pgm", b".pnm", b".ppm", b".psd", b".raw", b".svg", b".tga", b".tif",
    b".tiff",
)  # fmt: skip
READ = ".JPEG, .jpg, .png, .webp, .bmp or .gif"
LAYOUT = "train/<class>/*.JPEG and val/<class>/*.JPEG"
NUM_THREADS = 16  # a listing waits for the disk, or for the network behind it


@dataclass(frozen=True)
class FolderIndex:
    """One part of a dataset. Files are kept as bytes, a third of what as many Python strings take."""

    folder: Path
    class_names: tuple[str, ...]
    files: np.ndarray  # bytes [n], relative to the folder
    labels: np.ndarray  # int64 [n], places in class_names

    def paths(self, samples: np.ndarray) -> list[str]:
        """The files of the samples, int64 [n]."""
        start = f"{self.folder}{os.sep}"
        return [start + os.fsdecode(file) for file in self.files[samples].tolist()]


def load_index(path: str) -> tuple[FolderIndex, FolderIndex]:
    """The training and the validation images in folder `path`; labels number the classes in the order of their names.

    Raises ConfigError where the folder is missing, has another layout, or has a class without images or one that only
    `val` has.
    """
    try:
        return _load(path, resolved(path))
    except OSError as error:
        raise ConfigError(
            f"dataset.path={path}: {error.filename}: cannot be listed ({error.strerror}); give it permissions to read,"
            " or remove links that lead back to themselves"
        ) from error


def resolved(path: str) -> Path:
    """The folder that `dataset.path` means. Raises ConfigError for links in a circle and for unknown users' homes."""
    try:
        return Path(path).expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"dataset.path={path}: there is no such folder ({error}); set dataset.path to a folder that holds the data"
        ) from error


def listed(path: str, root: Path) -> list[Path]:
    """What is in the folder that `dataset.path` means, sorted. Raises ConfigError where it cannot be listed."""
    try:
        return sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        what = f"there is no folder {root}"
    except OSError as error:
        what = f"{root} cannot be listed ({error.strerror})"
    raise ConfigError(f"dataset.path={path}: {what}; set dataset.path to a folder that you may read")


def _load(path: str, root: Path) -> tuple[FolderIndex, FolderIndex]:
    missing = [name for name in ("train", "val") if not (root / name).is_dir()]
    if missing:
        what = f"the folder {root} lacks {' and '.join(missing)}" if root.is_dir() else f"there is no folder {root}"
        raise ConfigError(f"dataset.path={path}: {what}; set dataset.path to a folder that holds {LAYOUT}")
    class_names = _class_names(path, root / "train")
    unknown = sorted(set(_class_names(path, root / "val")) - set(class_names))
    if unknown:
        raise ConfigError(
            f"dataset.path={path}: {root / 'val' / unknown[0]} is a class that {root / 'train'} has no folder of; take"
            " it out, or add its training images"
        )
    return _index(path, root / "train", class_names), _index(path, root / "val", class_names)


def _class_names(path: str, folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    loose = sorted(entry.name for entry in visible if os.fsencode(entry.name).lower().endswith(EXTENSIONS))
    if loose:
        raise ConfigError(
            f"dataset.path={path}: {folder} holds images that are in no class ({loose[0]} and so on, {len(loose)} in"
            f" all); move each into the folder of its class, as in {LAYOUT}"
        )
    names = tuple(sorted(entry.name for entry in visible if entry.is_dir()))
    if not names:
        raise ConfigError(f"dataset.path={path}: {folder} holds no class; put folders of images there, as in {LAYOUT}")
    return names


def _index(path: str, folder: Path, class_names: tuple[str, ...]) -> FolderIndex:
    there = [(label, name) for label, name in enumerate(class_names) if (folder / name).is_dir()]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        listings = list(threads.map(lambda entry: _images(path, folder, entry[1]), there))
    files = np.array([file for listing in listings for file in listing])
    labels = np.repeat([label for label, _ in there], [len(listing) for listing in listings])
    return FolderIndex(folder, class_names, files, labels.astype(np.int64))


def _images(path: str, folder: Path, name: str) -> list[bytes]:
    inside = os.fsencode(name) + os.fsencode(os.sep)
    # Names that begin with a dot are what some systems leave beside a file that they copied.
    files = [file for file in os.listdir(os.fsencode(folder / name)) if not file.startswith(b".")]  # noqa: PTH208
    images = sorted(inside + file for file in files if file.lower().endswith(EXTENSIONS))
    if unread := sorted(file for file in files if file.lower().endswith(UNREAD)):
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} holds images that are not read"
            f" ({os.fsdecode(unread[0])} and so on, {len(unread)} in all); convert them to {READ}, or take them out"
        )
    if not images:
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} holds no image ({READ}); add some, or remove the folder"
        )
    if nested := sorted(file for file in files if b"." not in file and holds_images(folder / name, file)):
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} holds images in a folder of its own"
            f" ({os.fsdecode(nested[0])}); move them into the class's folder, or take them out"
        )
    return images


def holds_images(folder: Path, name: bytes) -> bool:
    """Whether this is a folder with images in it."""
    path = os.path.join(os.fsencode(folder), name)  # noqa: PTH118  (a name may be no text)
    return os.path.isdir(path) and any(file.lower().endswith(EXTENSIONS) for file in os.listdir(path))  # noqa: PTH112, PTH208
