"""Hugging Face's Trainer: an import, a callback, and its target."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import EvalPrediction, PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from timetrial import HuggingFaceTimeTrial


class Mlp(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.post_init()

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(pixels)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


data = load_digits()
rows = [
    {"pixels": pixels, "labels": label} for pixels, label in zip(data.data.astype("f4") / 16, data.target, strict=True)
]
arguments = TrainingArguments(
    "checkpoints", num_train_epochs=10, per_device_train_batch_size=50, learning_rate=0.01, eval_strategy="epoch",
    logging_steps=10, save_strategy="no", seed=1, use_cpu=True, report_to="none", disable_tqdm=True,
)  # fmt: skip
trial = HuggingFaceTimeTrial({"accuracy": 0.9}, name="mlp", dataset="digits")
trainer = Trainer(Mlp(PretrainedConfig()), arguments, train_dataset=rows[:1500], eval_dataset=rows[1500:],
                  compute_metrics=accuracy, callbacks=[trial])  # fmt: skip
trainer.train()
