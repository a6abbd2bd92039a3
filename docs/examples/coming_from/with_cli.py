"""LightningCLI: nothing of timetrial is in the script, the callback stands in YAML.

    python with_cli.py fit --config with_cli.yaml

OLD_PACKAGE=1 takes the package `pytorch_lightning`.
"""

import os

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

if os.environ.get("OLD_PACKAGE"):
    import pytorch_lightning as pl
    from pytorch_lightning.cli import LightningCLI
else:
    import lightning.pytorch as pl
    from lightning.pytorch.cli import LightningCLI


class Mlp(pl.LightningModule):
    def __init__(self, learning_rate: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["learning_rate"])


class Digits(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        data = load_digits()
        images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
        self.parts = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[0], batch_size=50, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[1], batch_size=297)


if __name__ == "__main__":
    LightningCLI(Mlp, Digits, save_config_callback=None)
