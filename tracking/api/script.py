"""The script that trains: its name, its folder and its arguments; also where it is a notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOTEBOOK = "notebook"  # the name of one whose front end does not tell its file


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this, whose own command line is no script's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def name() -> str:
    if not in_notebook():
        return Path(sys.argv[0]).name
    main = vars(sys.modules["__main__"])  # Jupyter's server sets the variable, and VS Code the name in the notebook.
    return Path(str(main.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or NOTEBOOK)).name


def arguments() -> list[str]:
    return [] if in_notebook() else sys.argv[1:]


def folder() -> Path:
    """A folder of the repository whose commit a run is of: that of the script, or the current one for a notebook and
    for a command that is installed, as `lightning` or a console script is."""
    path = Path(sys.argv[0]).resolve()
    installed = path.is_relative_to(Path(sys.prefix).resolve())
    return Path.cwd() if in_notebook() or installed or not path.is_file() else path.parent
