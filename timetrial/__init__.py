"""timetrial measures the time to accuracy of trainings. Your own code imports from here (docs/api.md).

    from timetrial import TimeTrial, time_trial                track your own training
    from timetrial import TrialModule, Workload, digits        write your own workload

Names are imported on first use, so that `import timetrial` is quick. All other modules are internal.
"""

from typing import TYPE_CHECKING

from timetrial.public_names import __dir__ as __dir__
from timetrial.public_names import __getattr__ as __getattr__
from tracking.base.installation import PREFIX

if TYPE_CHECKING:
    from conf.schema import ConfigError as ConfigError
    from tracking.api import HuggingFaceTimeTrial as HuggingFaceTimeTrial
    from tracking.api import KerasTimeTrial as KerasTimeTrial
    from tracking.api import Trial as Trial
    from tracking.lightning import TimeTrial as TimeTrial
    from tracking.lightning import time_trial as time_trial
    from trainers.data.crop import SquareView as SquareView
    from trainers.data.detection import coco as coco
    from trainers.data.detection.view import View as View
    from trainers.data.digits import digits as digits
    from trainers.data.image_folder import imagenet as imagenet
    from trainers.data.images import ImageData as ImageData
    from trainers.loop.load_model import load_model as load_model
    from trainers.ops.confusion.matrix import ConfusionCounter as ConfusionCounter
    from trainers.ops.confusion.matrix import confusion_cells as confusion_cells
    from trainers.workload import Batch as Batch
    from trainers.workload import ClassificationData as ClassificationData
    from trainers.workload import Data as Data
    from trainers.workload import DetectionData as DetectionData
    from trainers.workload import Loader as Loader
    from trainers.workload import Shard as Shard
    from trainers.workload import TrialModule as TrialModule
    from trainers.workload import Workload as Workload

if not PREFIX:
    from timetrial import clone

    clone.lead_to_its_packages()
