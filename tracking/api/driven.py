"""A time_trial that a framework's callback begins and ends, without a `with` block around the training."""

from __future__ import annotations

import sys
import weakref
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tracking.api.loop import Trial, time_trial
from tracking.api.options import TrialOptions, checked


class TrialSession:
    """Begins and ends runs for a callback. `trial` is None between trainings.

    `options` are those of time_trial. Raises ConfigError for a wrong one. An exception that ends the script during the
    training becomes the run's failure.
    """

    def __init__(self, **options: Any) -> None:
        names = TrialOptions.__dataclass_fields__
        checked(TrialOptions(**{"target": {}} | {key: value for key, value in options.items() if key in names}))
        self._options = options
        self._context: AbstractContextManager[Trial] | None = None
        self.trial: Trial | None = None
        self._model: Any = None
        self._trained_models: weakref.WeakSet[Any] = weakref.WeakSet()

    def begin(self, model: Any, **defaults: Any) -> Trial:
        """Start a run. `defaults` hold for options that the script has not set.

        If this session has trained the `model` before, the run is noted as the rest of a training.
        """
        if self.trial is not None:
            self._exit_context(RuntimeError("another training began before this one had ended"))
        self._context = time_trial(**defaults | self._options)
        self.trial = self._context.__enter__()
        self._model = model
        if model in self._trained_models:
            self.trial.note_continued()
        self._former_excepthook = sys.excepthook
        sys.excepthook = self._record_exception
        return self.trial

    def end(self) -> None:
        if self.trial is not None:
            self._exit_context(None)

    def _exit_context(self, error: BaseException | None) -> None:
        if self.trial is not None and self.trial.has_steps:
            self._trained_models.add(self._model)
        self._model = None
        context, self._context, self.trial = self._context, None, None
        sys.excepthook = self._former_excepthook
        assert context is not None
        try:
            context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except BaseException as exit_error:
            if exit_error is not error:
                raise

    def _record_exception(
        self, error_type: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        former_excepthook = self._former_excepthook
        if self.trial is not None:
            self._exit_context(error)
        former_excepthook(error_type, error, trace)
