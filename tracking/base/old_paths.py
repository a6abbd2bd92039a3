"""Old import paths of public names, which users now import from `timetrial`.

They work until version 0.3, with a DeprecationWarning. Our own modules import by these paths without a warning.
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
    """A module class that warns users' `from X import Y`; set as the `__class__` of a module.

    Do not use it for a module with compiled functions: `torch.compile` would look up globals here in each call.
    """

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if not name.startswith("_"):
            module = super().__getattribute__("__name__").removeprefix(installation.PREFIX)
            if name in OLD_PATHS[module] and _is_import_of_others(sys._getframe(1)):
                message = f"from {module} import {name}: removed in {UNTIL}. Next: write `from timetrial import {name}`"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
        return value


def _is_import_of_others(frame: FrameType) -> bool:
    """Whether the frame executes a `from X import Y` in a file outside timetrial."""
    code = frame.f_code
    instruction = code.co_code[frame.f_lasti] if frame.f_lasti >= 0 else None
    return instruction == dis.opmap["IMPORT_FROM"] and not code.co_filename.startswith(f"{installation.CODE}/")


def watch(module: str) -> None:
    """Make a module warn of such imports. Call it after the module has defined its names."""
    sys.modules[module].__class__ = OldPath


watch(schema.__name__)  # conf/ cannot import this module, so the call is here.
