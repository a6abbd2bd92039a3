"""A plain PyTorch loop: what timetrial adds are the `with` line and three calls."""

import torch
from sklearn.datasets import load_digits

from timetrial import time_trial

torch.manual_seed(1)
data = load_digits()
images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with time_trial({"accuracy": 0.9}, name="mlp", dataset="digits", batch_size=50, device="cpu") as trial:
    for epoch in range(1, 11):
        for batch in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            trial.step(len(batch), loss)
        with trial.evaluation(), torch.no_grad():
            accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
            reached = trial.evaluate({"accuracy": accuracy}, epoch=epoch)
        if reached:
            break
