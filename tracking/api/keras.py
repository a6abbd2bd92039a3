"""A callback for Keras 3.

from timetrial import KerasTimeTrial
model.fit(..., callbacks=[KerasTimeTrial({"val_accuracy": 0.9}, batch_size=64, num_samples=len(x))])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from conf.schema import ConfigError
from tracking.api.driven import TrialSession
from tracking.api.script_arguments import check_flag


class KerasTimeTrial(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes a run of every `model.fit`. `options` are those of `time_trial`.

    `batch_size` is the one given to `fit`, which hides it from callbacks. `num_samples` is the number of samples in an
    epoch, since the last batch may be smaller. Without `batch_size` the run has no rate. A step is an execution, of
    `steps_per_execution` batches. On JAX and TensorFlow a step's time is the time between the ends of steps on the
    host. Raises ConfigError for JAX and TensorFlow on a GPU.
    """

    def __init__(
        self, target: Mapping[str, float | str] | None = None, *, batch_size: int | None = None,
        num_samples: int | None = None, stop_at_target: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        check_flag("stop_at_target", stop_at_target)
        device_option = {} if keras.backend.backend() == "torch" else {"device": "cpu"}
        self._session = TrialSession(target=target or {}, batch_size=batch_size, **device_option | options)
        self._batch_size, self._num_samples = batch_size, num_samples
        self._stop_at_target = stop_at_target
        self._batches = 0  # batches trained in this epoch
        self._epochs_before: int | None = None  # `initial_epoch`; None until the first epoch begins

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        check_device()
        optimizer = getattr(self.model, "optimizer", None)
        params = {"framework": f"keras on {keras.backend.backend()}", "max_epochs": self.params.get("epochs")}
        if optimizer is not None:
            params["optimizer/name"] = optimizer.name
        name = type(self.model).__name__
        trial = self._session.begin(self.model, name=name, precision=keras.config.dtype_policy().name, params=params)
        if self._batch_size is None:
            trial.forget_samples()
        self._epochs_before = None

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._batches = 0
        if self._session.trial is not None and self._epochs_before is None:
            self._epochs_before = epoch
            if epoch:
                self._session.trial.note_continued(epoch)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._session.trial is not None:
            self._session.trial.step(self._execution_samples(), (logs or {}).get("loss"))

    def _execution_samples(self) -> int:
        """The samples of the batches since the last call. The last execution of an epoch may have fewer batches."""
        batch_size, first = self._batch_size or 0, self._batches
        self._batches += getattr(self.model, "steps_per_execution", 1)
        if epoch_batches := self.params.get("steps"):
            self._batches = min(self._batches, epoch_batches)
        samples = (self._batches - first) * batch_size
        return samples if self._num_samples is None else max(0, min(samples, self._num_samples - first * batch_size))

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._session.trial is not None:
            self._session.trial.open_evaluation()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the metrics of the validation; without a validation, those of the training."""
        if self._session.trial is None:
            return
        values = {name: float(value) for name, value in (logs or {}).items()}
        validated = {name: value for name, value in values.items() if name.startswith("val_")}
        epochs_trained = epoch + 1 - (self._epochs_before or 0)
        if self._session.trial.evaluate(validated or values, epoch=epochs_trained) and self._stop_at_target:
            self.model.stop_training = True

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._session.end()


def check_device() -> None:
    """Raise ConfigError for JAX and TensorFlow on a GPU, whose steps cannot be timed from here."""
    backend = keras.backend.backend()
    if backend != "torch" and any(str(device).startswith("gpu") for device in keras.distribution.list_devices()):
        raise ConfigError(
            f"KerasTimeTrial: cannot measure {backend} on a GPU. Next: run the script as a program: timetrial run"
            " model=program program.command='python train.py'"
        )
