"""Lightning Fabric: the loop is the script's, so `time_trial` stands around it; every process calls the same."""

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from timetrial import time_trial


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    fabric.seed_everything(1, verbose=False)
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.01))
    loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=50, shuffle=True)
    loader = fabric.setup_dataloaders(loader)

    with time_trial({"accuracy": 0.9}, name="mlp", dataset="digits", batch_size=50, device=fabric.device) as trial:
        for epoch in range(1, 11):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                fabric.backward(loss)
                optimizer.step()
                trial.step(len(x), loss)
            with trial.evaluation(), torch.no_grad():
                right = (model(images[1500:].to(fabric.device)).argmax(1).cpu() == labels[1500:]).float()
                reached = trial.evaluate({"accuracy": right.mean()}, epoch=epoch)
            if reached:
                break


if __name__ == "__main__":
    main()
