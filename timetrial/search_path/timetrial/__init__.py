"""The installed package, for a Python that must not see what is installed beside it.

A worker may run on another Python, with another torch. Its search path then names the folder that this package lies in
(tracking/base/installation.py), and modules are found where they are, two folders up.
"""

from __future__ import annotations

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2])]

from timetrial.public_names import __getattr__ as __getattr__
