"""Exports the code compiled on this machine to one file, and imports it on a machine with the same stack and GPU.

The file's content is executed. So it is signed, and a file with another user's signature is refused.
"""

from tracking.machine.compiled.exporting import export
from tracking.machine.compiled.importing import identity, import_file

__all__ = ["export", "identity", "import_file"]
