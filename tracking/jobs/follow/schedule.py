"""How far a run is in its schedule, and how long the rest takes at its pace."""

from __future__ import annotations

from tracking.record import Record, attempts, typed_json


class Schedule:
    """The place of a run in its schedule, from the events of its journal.

    `step` is the newest global step. For events that begin after a `resume`, it is the step that the attempt continues
    from. `epochs` and `batches` (of an epoch) are 0 if they are not known, as for a program.
    """

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.epochs = self.batches = 0
        self._began: tuple[float, int] | None = None  # seconds and steps at the start of this attempt's first epoch

    @property
    def num_steps(self) -> int:
        """Steps of the whole schedule; 0 if not known."""
        return self.epochs * self.batches

    def see(self, event: Record) -> None:
        values = event.values
        if event.key == attempts.RESUME:  # Steps of the earlier attempt beyond this one are trained again.
            self.step, self._began = int(values.get("from_step", 0)), None
        elif event.key == "run_start":
            self.epochs, self.batches = (int(values.get(name) or 0) for name in ("max_epochs", "num_batches"))
        elif event.key == "epoch_start" and self._began is None and typed_json.is_number(values.get("epoch_num")):
            self.step = max(
                int((values["epoch_num"] - 1) * self.batches), self.step
            )  # It may continue within an epoch.
            self._began = event.clock_sec, self.step
        elif event.key == "throughput_window":
            self.step = int(values.get("step", self.step))

    def left_sec(self, now_sec: float) -> float | None:
        """Seconds for the rest of the schedule at this attempt's pace; None before its first window.

        `now_sec` is the present time on the events' clock. The target may be reached earlier.
        """
        if not self.num_steps or self._began is None or self.step <= self._began[1]:
            return None
        began_sec, began_step = self._began
        return (now_sec - began_sec) / (self.step - began_step) * max(0, self.num_steps - self.step)
