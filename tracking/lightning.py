"""The names that a user's training script imports.

from tracking.lightning import TimeTrial
trainer = pl.Trainer(..., callbacks=[TimeTrial(target={"val_acc": 0.9})])

from tracking.lightning import time_trial
with time_trial(target={"accuracy": 0.9}) as trial:  # in your own loop
"""

from tracking.api import TimeTrial, time_trial

__all__ = ["TimeTrial", "time_trial"]
