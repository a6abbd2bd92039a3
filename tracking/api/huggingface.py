"""A callback for Hugging Face's Trainer.

from timetrial import HuggingFaceTimeTrial
trainer = Trainer(..., callbacks=[HuggingFaceTimeTrial({"accuracy": 0.9})])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from tracking.api.driven import TrialSession
from tracking.api.samples import first_dimension
from tracking.api.script_arguments import check_flag
from tracking.api.script_run import say
from tracking.base import quantities

EVAL_PREFIX = "eval_"  # Trainer's prefix of evaluation metrics
# The Trainer's own metrics, which are not a model's.
TRAINER_METRICS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


class HuggingFaceTimeTrial(TrainerCallback):  # type: ignore[misc, unused-ignore]  # may not be installed
    """Makes a run of every `trainer.train`. `options` are those of `time_trial`.

    Metrics, also in `target`, have the names of `compute_metrics`: `accuracy`. A step is an optimizer step. Samples are
    counted where the network is called in training.
    """

    def __init__(
        self, target: Mapping[str, float | str] | None = None, *, stop_at_target: bool = True, **options: Any
    ) -> None:
        check_flag("stop_at_target", stop_at_target)
        targets: Any = {} if target is None else target
        if isinstance(targets, Mapping):  # time_trial refuses others.
            targets = {name.removeprefix(EVAL_PREFIX): value for name, value in targets.items()}
        self._session, self._target = TrialSession(target=targets, **options), targets
        self._stop_at_target = stop_at_target
        self._samples = 0
        self._epochs_before = 0.0  # epochs of the checkpoint that the training continues
        self._forward_hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        if self._target and args.eval_strategy == "no" and state.is_world_process_zero:
            names = ", ".join(self._target)
            say(f"target={names}: is never evaluated. Next: set TrainingArguments(eval_strategy='epoch')")
        self._samples = 0
        self._forward_hook = model.register_forward_pre_hook(self._count_samples, with_kwargs=True)
        hparams = {"learning_rate": args.learning_rate, "gradient_accumulation_steps": args.gradient_accumulation_steps}
        trial = self._session.begin(
            model, name=type(model).__name__[:40], device=args.device, batch_size=args.per_device_train_batch_size,
            precision="bf16-mixed" if args.bf16 else "16-mixed" if args.fp16 else "32-true",
            params=hparams | {"max_epochs": args.num_train_epochs, "optimizer/name": str(args.optim)},
        )  # fmt: skip
        self._epochs_before = (state.epoch or 0.0) if state.global_step else 0.0
        if state.global_step:
            trial.note_continued(self._epochs_before)

    def _count_samples(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module.training:
            self._samples += first_dimension([*kwargs.values(), *args]) or 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._session.trial is not None:
            self._session.trial.step(self._samples)
            self._samples = 0
            self._open_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open_evaluation(control)

    def _open_evaluation(self, control: Any) -> None:
        """Begin an evaluation if the Trainer's own callback, which runs before ours, has requested one."""
        if self._session.trial is not None and control.should_evaluate:
            self._session.trial.open_evaluation()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        if self._session.trial is not None and isinstance(loss := (logs or {}).get("loss"), float):
            self._session.trial.curves({quantities.TRAIN_LOSS: loss})

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._session.trial is None:
            return
        metrics = kwargs["metrics"]
        evaluated = {name: value for name, value in metrics.items() if name.startswith(EVAL_PREFIX)}
        numbers = {name: value for name, value in evaluated.items() if isinstance(value, int | float)}
        by_name = {name.removeprefix(EVAL_PREFIX): value for name, value in numbers.items()}
        values = {name: value for name, value in by_name.items() if name not in TRAINER_METRICS}
        if self._session.trial.evaluate(values, epoch=state.epoch - self._epochs_before) and self._stop_at_target:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._forward_hook.remove()
        self._session.end()
