"""An index of packages on this disk: wheels that are empty but for their names, so that uv has nothing to fetch."""

from __future__ import annotations

import zipfile
from pathlib import Path

NAMES = ("torch", "pytorch-lightning", "nvidia-ml-py", "numpy", "pyyaml", "setuptools", "extra")


def make_index(root: Path, versions: dict[str, str] | None = None, needs: dict[str, str] | None = None) -> str:
    """The URL of an index that holds one version of each of NAMES; `needs` gives some a requirement."""
    given = {"torch": "2.6.0", "pytorch-lightning": "2.6.0", "nvidia-ml-py": "13.0", "numpy": "2.0", "pyyaml": "6.0"}
    given |= {"setuptools": "80.0", "extra": "1.0"}
    for name in NAMES:
        version = {**given, **(versions or {})}[name]
        folder = root / name
        folder.mkdir(parents=True)
        wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        write_wheel(wheel, name, version, (needs or {}).get(name))
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return root.as_uri()


def write_wheel(path: Path, name: str, version: str, need: str | None) -> None:
    info = f"{path.name.removesuffix('-py3-none-any.whl')}.dist-info"
    requires = f"Requires-Dist: {need}\n" if need else ""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
