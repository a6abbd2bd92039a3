"""Modules that docs once told users to import from: their own code imports from `timetrial` now.

The old imports work until version 0.3, with a DeprecationWarning. Ours go on importing from the modules, unwarned.
"""

from __future__ import annotations

import dis
import sys
import warnings
from types import FrameType, ModuleType

from conf import schema
from tracking.base import installation

UNTIL = "0.3"
OLD_PATHS = {
    "conf.schema": ("ConfigError",),
    "trainers.confusion": ("ConfusionCounter", "confusion_cells"),
    "trainers.data.crop": ("SquareView",),
    "trainers.data.detection": ("coco",),
    "trainers.data.digits": ("digits",),
    "trainers.data.image_folder": ("imagenet",),
    "trainers.data.images": ("ImageData",),
    "trainers.loop.load_model": ("load_model",),
    "trainers.ops.confusion": ("ConfusionCounter", "confusion_cells"),
    "trainers.workload": ("Batch", "ClassificationData", "TrialModule", "Workload"),
}


class OldPath(ModuleType):
    """A module that sees who imports a name from it. Python allows a module to change to such a class.

    It holds no function that is compiled: `torch.compile` would ask this class for globals, in each call.
    """

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if not name.startswith("_"):
            module = super().__getattribute__("__name__").removeprefix(installation.PREFIX)
            if name in OLD_PATHS[module] and _is_import_of_others(sys._getframe(1)):
                words = f"from {module} import {name}: write `from timetrial import {name}`; it ends with {UNTIL}"
                warnings.warn(words, DeprecationWarning, stacklevel=2)
        return value


def _is_import_of_others(frame: FrameType) -> bool:
    """Whether the frame is at a `from X import Y`, in a file that is not ours."""
    code = frame.f_code
    instruction = code.co_code[frame.f_lasti] if frame.f_lasti >= 0 else None
    return instruction == dis.opmap["IMPORT_FROM"] and not code.co_filename.startswith(f"{installation.CODE}/")


def watch(module: str) -> None:
    """Have a module warn of such imports, once all of its names are there."""
    sys.modules[module].__class__ = OldPath


watch(schema.__name__)  # conf/ imports nothing of ours, so it cannot ask for it.
