"""A callback for Hugging Face's Trainer.

from timetrial import HuggingFaceTimeTrial
trainer = Trainer(..., callbacks=[HuggingFaceTimeTrial({"accuracy": 0.9})])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from tracking.api.driven import Driven
from tracking.api.samples import first_dimension
from tracking.api.script_run import say
from tracking.base import quantities

PREFIX = "eval_"  # Trainer's prefix of evaluation metrics
OF_TRAINER = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")  # not metrics of a model


class HuggingFaceTimeTrial(TrainerCallback):  # type: ignore[misc, unused-ignore]  # may not be installed
    """Makes a run of every `trainer.train`. `options` are those of `time_trial`.

    Metrics, also in `target`, have the names of `compute_metrics`: `accuracy`. A step is an optimizer step. Samples are
    those with which the network is called in training.
    """

    def __init__(
        self, target: Mapping[str, float | str] | None = None, *, stop_at_target: bool = True, **options: Any
    ) -> None:
        named: Any = {} if target is None else target
        if isinstance(named, Mapping):  # Others are refused by time_trial.
            named = {name.removeprefix(PREFIX): value for name, value in named.items()}
        self._driven, self._target = Driven(target=named, **options), named
        self._stop_at_target = stop_at_target
        self._samples = 0
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        if self._target and args.eval_strategy == "no" and state.is_world_process_zero:
            names = ", ".join(self._target)
            say(f"target={names}: is never evaluated. Next: set TrainingArguments(eval_strategy='epoch')")
        self._samples = 0
        self._hook = model.register_forward_pre_hook(self._count, with_kwargs=True)
        tuned = {"learning_rate": args.learning_rate, "gradient_accumulation_steps": args.gradient_accumulation_steps}
        self._driven.begin(
            name=type(model).__name__[:40], device=args.device, batch_size=args.per_device_train_batch_size,
            precision="bf16-mixed" if args.bf16 else "16-mixed" if args.fp16 else "32-true",
            params=tuned | {"max_epochs": args.num_train_epochs, "optimizer/name": str(args.optim)},
        )  # fmt: skip

    def _count(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module.training:
            self._samples += first_dimension([*kwargs.values(), *args]) or 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._driven.trial is not None:
            self._driven.trial.step(self._samples)
            self._samples = 0
            self._open(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open(control)

    def _open(self, control: Any) -> None:
        """Begin an evaluation if the Trainer's own callback, which runs before ours, has requested one."""
        if self._driven.trial is not None and control.should_evaluate:
            self._driven.trial.open_evaluation()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        if self._driven.trial is not None and isinstance(loss := (logs or {}).get("loss"), float):
            self._driven.trial.curves({quantities.TRAIN_LOSS: loss})

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._driven.trial is None:
            return
        evaluated = kwargs["metrics"]
        named = {name.removeprefix(PREFIX): value for name, value in evaluated.items() if name.startswith(PREFIX)}
        numbers = {name: value for name, value in named.items() if isinstance(value, int | float)}
        values = {name: value for name, value in numbers.items() if name not in OF_TRAINER}
        if self._driven.trial.evaluate(values, epoch=state.epoch) and self._stop_at_target:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._hook.remove()
        self._driven.end()
