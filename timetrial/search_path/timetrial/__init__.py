"""Leads to the installed package, for a Python that must not see the other packages beside it.

A worker may run on another Python, with another torch. Its search path then has this package's folder
(tracking/base/installation.py), and modules are found two folders up.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2])]

from timetrial.public_names import __getattr__ as __getattr__
