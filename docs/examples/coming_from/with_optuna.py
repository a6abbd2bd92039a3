"""Optuna: each of its trials is a run with the proposed params; its objective is the time to the target."""

import time

import optuna
import torch
from sklearn.datasets import load_digits

from timetrial import time_trial

data = load_digits()
images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)


def seconds_to_target(proposed: optuna.Trial) -> float:
    width = proposed.suggest_int("width", 16, 128, log=True)
    rate = proposed.suggest_float("learning_rate", 1e-3, 1e-1, log=True)
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with time_trial({"accuracy": 0.9}, name="mlp", dataset="digits", params=proposed.params, device="cpu") as trial:
        began = time.perf_counter()
        for epoch in range(1, 31):
            for batch in torch.randperm(1500).split(50):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                loss.backward()
                optimizer.step()
                trial.step(len(batch), loss)
            right = model(images[1500:]).argmax(1) == labels[1500:]
            if trial.evaluate({"accuracy": right.float().mean()}, epoch=epoch):
                return time.perf_counter() - began
    raise optuna.TrialPruned("the target was missed")


if __name__ == "__main__":
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(seconds_to_target, n_trials=4)
    print(study.best_params)
