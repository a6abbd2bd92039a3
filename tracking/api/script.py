"""The training script or notebook: its name, folder and arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOTEBOOK = "notebook"  # name of a notebook whose front end does not tell its file


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process. Its command line is then not a script's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def name() -> str:
    if not in_notebook():
        return Path(sys.argv[0]).name
    main = vars(sys.modules["__main__"])  # Jupyter's server sets the variable, VS Code the name.
    return Path(str(main.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or NOTEBOOK)).name


def arguments() -> list[str]:
    return [] if in_notebook() else sys.argv[1:]


def folder() -> Path:
    """The script's folder, to find its repository; for a notebook or an installed command, the current folder."""
    path = Path(sys.argv[0]).resolve()
    installed = path.is_relative_to(Path(sys.prefix).resolve())
    return Path.cwd() if in_notebook() or installed or not path.is_file() else path.parent
