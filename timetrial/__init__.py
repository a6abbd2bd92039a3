"""timetrial measures the time to accuracy of trainings; this is what one's own code imports of it.

    from timetrial import TimeTrial, time_trial                what tracks a training of one's own
    from timetrial import TrialModule, Workload                what a workload of one's own is made of
    from timetrial.trainers.data.digits import digits          any module, in a clone as where it is installed

A name is imported when it is asked for, so that `import timetrial` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timetrial.names import __getattr__ as __getattr__
from tracking.base.installation import PREFIX

if TYPE_CHECKING:
    from tracking.lightning import TimeTrial as TimeTrial
    from tracking.lightning import time_trial as time_trial
    from trainers.workload import TrialModule as TrialModule
    from trainers.workload import Workload as Workload

if not PREFIX:
    from timetrial import clone

    clone.lead_to_its_packages()
