"""What was compiled on this machine, as one file that another machine of the same stack and GPU takes.

What is in the file is executed. So it is signed, and whose signature is not this user's is refused.
"""

from __future__ import annotations

from tracking.machine.compiled.exporting import export
from tracking.machine.compiled.identity import identity
from tracking.machine.compiled.importing import import_file

__all__ = ["export", "identity", "import_file"]
