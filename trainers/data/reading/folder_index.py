"""Lists the images of a dataset whose folders are named after the classes, without reading them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from tracking.base.paths import with_home

EXTENSIONS = (b".jpeg", b".jpg", b".jpe", b".jfif", b".png", b".webp", b".bmp", b".gif")
# Extensions of image formats that are not supported. Other files beside the images, such as lists, are ignored.
UNREAD = (
    b".apng", b".avif", b".cr2", b".dds", b".dng", b".exr", b".hdr", b".heic", b".heif", b".ico", b".j2k", b".jp2",
    b".jpx", b".jxl", b".nef", b".pbm", b".pgm", b".pnm", b".ppm", b".psd", b".raw", b".svg", b".tga", b".tif",
    b".tiff",
)  # fmt: skip
READ = ".JPEG, .jpg, .png, .webp, .bmp or .gif"
LAYOUT = "train/<class>/*.JPEG and val/<class>/*.JPEG"
NUM_THREADS = 16  # A listing waits for the disk or the network.


@dataclass(frozen=True)
class FolderIndex:
    """One part of a dataset. Files are kept as bytes, which take a third of the memory of Python strings."""

    folder: Path
    class_names: tuple[str, ...]
    files: np.ndarray  # bytes [n], relative to the folder
    labels: np.ndarray  # int64 [n], indices into class_names

    def paths(self, samples: np.ndarray) -> list[str]:
        """Return the files of samples, int64 [n]."""
        start = f"{self.folder}{os.sep}"
        return [start + os.fsdecode(file) for file in self.files[samples].tolist()]


def load_index(path: str) -> tuple[FolderIndex, FolderIndex]:
    """Return the training and validation images in folder `path`; labels follow the sorted class names.

    Raises ConfigError if the folder is missing or has another layout, or a class has no images or exists only in `val`.
    """
    try:
        return _load(path, resolved(path))
    except OSError as error:
        raise ConfigError(
            f"dataset.path={path}: {error.filename}: cannot be listed ({error.strerror}). Next: make it readable, or"
            " remove links that lead back to themselves"
        ) from error


def resolved(path: str) -> Path:
    """Return the absolute path of `dataset.path`. Raises ConfigError for circular links and unknown users' homes."""
    try:
        return with_home(path).resolve()
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"dataset.path={path}: no such folder ({error}). Next: set dataset.path to a folder with the data"
        ) from error


def listed(path: str, root: Path) -> list[Path]:
    """Return the sorted entries of the folder of `dataset.path`. Raises ConfigError if it cannot be listed."""
    try:
        return sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        problem = f"{root} is not a folder"
    except OSError as error:
        problem = f"{root} cannot be listed ({error.strerror})"
    raise ConfigError(f"dataset.path={path}: {problem}. Next: set dataset.path to a folder that you may read")


def _load(path: str, root: Path) -> tuple[FolderIndex, FolderIndex]:
    missing = [name for name in ("train", "val") if not (root / name).is_dir()]
    if missing:
        problem = f"the folder {root} lacks {' and '.join(missing)}" if root.is_dir() else f"{root} is not a folder"
        raise ConfigError(f"dataset.path={path}: {problem}. Next: set dataset.path to a folder with {LAYOUT}")
    class_names = _class_names(path, root / "train")
    unknown = sorted(set(_class_names(path, root / "val")) - set(class_names))
    if unknown:
        raise ConfigError(
            f"dataset.path={path}: {root / 'val' / unknown[0]} is a class without a folder in {root / 'train'}. Next:"
            " take it out, or add its training images"
        )
    return _index(path, root / "train", class_names), _index(path, root / "val", class_names)


def _class_names(path: str, folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    loose = sorted(entry.name for entry in visible if os.fsencode(entry.name).lower().endswith(EXTENSIONS))
    if loose:
        raise ConfigError(
            f"dataset.path={path}: {folder} has images outside of class folders ({loose[0]} and so on, {len(loose)} in"
            f" all). Next: move each into the folder of its class, as in {LAYOUT}"
        )
    names = tuple(sorted(entry.name for entry in visible if entry.is_dir()))
    if not names:
        raise ConfigError(
            f"dataset.path={path}: {folder} has no class. Next: put folders of images there, as in {LAYOUT}"
        )
    return names


def _index(path: str, folder: Path, class_names: tuple[str, ...]) -> FolderIndex:
    classes = [(label, name) for label, name in enumerate(class_names) if (folder / name).is_dir()]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        listings = list(threads.map(lambda entry: _images(path, folder, entry[1]), classes))
    files = np.array([file for listing in listings for file in listing])
    labels = np.repeat([label for label, _ in classes], [len(listing) for listing in listings])
    return FolderIndex(folder, class_names, files, labels.astype(np.int64))


def _images(path: str, folder: Path, name: str) -> list[bytes]:
    inside = os.fsencode(name) + os.fsencode(os.sep)
    # Some systems leave files whose names begin with a dot beside files that they copy.
    files = [file for file in os.listdir(os.fsencode(folder / name)) if not file.startswith(b".")]  # noqa: PTH208
    images = sorted(inside + file for file in files if file.lower().endswith(EXTENSIONS))
    if unread := sorted(file for file in files if file.lower().endswith(UNREAD)):
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} has images of formats that are not read"
            f" ({os.fsdecode(unread[0])} and so on, {len(unread)} in all). Next: convert them to {READ}, or take them"
            " out"
        )
    if not images:
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} has no image ({READ}). Next: add some, or remove the"
            " folder"
        )
    if nested := sorted(file for file in files if b"." not in file and holds_images(folder / name, file)):
        raise ConfigError(
            f"dataset.path={path}: the class {folder / name} has images in a subfolder ({os.fsdecode(nested[0])})."
            " Next: move them into the class's folder, or take them out"
        )
    return images


def holds_images(folder: Path, name: bytes) -> bool:
    """Return whether this is a folder with images."""
    path = os.path.join(os.fsencode(folder), name)  # noqa: PTH118  (a name may not be valid text)
    return os.path.isdir(path) and any(file.lower().endswith(EXTENSIONS) for file in os.listdir(path))  # noqa: PTH112, PTH208
