"""K-folds: each fold is a run of its own, and its number a param."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from timetrial import time_trial

torch.manual_seed(1)
data = load_digits()
images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
for fold, (train, test) in enumerate(StratifiedKFold(5).split(images, labels), 1):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with time_trial({"accuracy": 0.9}, name="mlp", dataset="digits", params={"fold": fold}, device="cpu") as trial:
        for epoch in range(1, 11):
            for batch in torch.tensor(train)[torch.randperm(len(train))].split(50):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                loss.backward()
                optimizer.step()
                trial.step(len(batch), loss)
            right = model(images[test]).argmax(1) == labels[test]
            if trial.evaluate({"accuracy": right.float().mean()}, epoch=epoch):
                break
