"""Accelerate: `accelerate launch with_accelerate.py`, or plain `python`; every process calls the same."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from timetrial import time_trial


def main() -> None:
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    train = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=50, shuffle=True)
    val = DataLoader(TensorDataset(images[1500:], labels[1500:]), batch_size=50)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)

    with time_trial({"accuracy": 0.9}, name="mlp", dataset="digits", batch_size=50, device=accelerator.device) as trial:
        for epoch in range(1, 11):
            for x, y in train:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                trial.step(len(x), loss)
            with trial.evaluation(), torch.no_grad():
                right = [accelerator.gather_for_metrics(model(x).argmax(1) == y) for x, y in val]
                reached = trial.evaluate({"accuracy": torch.cat(right).float().mean()}, epoch=epoch)
            if reached:
                break


if __name__ == "__main__":
    main()
