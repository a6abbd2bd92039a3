"""A workload of a user's own, small enough for tests, that can be made to fail in every way a run can."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import torch
import torch.distributed as dist
from torch import nn

from trainers.data.digits import digits
from trainers.data.images import ImageData
from trainers.workload import Batch, TrialModule, Workload


class Logits(nn.Module):
    """uint8 [n, 1, height, width] to logits [n, num_classes]."""

    def __init__(self, net: nn.Linear) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images.flatten(1).float() / 255)


class Tiny(TrialModule):
    """Logistic regression. `fault` strikes at step 5 of the training, on the last rank.

    `work` makes a step longer, and so does `rest_sec`, while others compute. A file `until` ends the training with the
    epoch in which it appears.
    """

    def __init__(
        self,
        data: ImageData,
        learning_rate: float,
        weight_decay: float,
        fault: str = "none",
        marker: str = "",
        work: int = 0,
        rest_sec: float = 0.0,
        until: str = "",
    ) -> None:
        super().__init__()
        self.max_epochs = 3
        self.learning_rate = learning_rate
        self.net = nn.Linear(data.image_size[0] * data.image_size[1], data.num_classes)
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64), persistent=False)
        self.fault, self.marker, self.work, self.until = fault, marker, work, until
        self.rest_sec = rest_sec
        self.steps = 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images.flatten(1).float() / 255)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        losses = nn.functional.cross_entropy(self.logits(batch["images"]), batch["labels"], reduction="none")
        loss = (losses * batch["weights"]).sum()
        for _ in range(self.work):
            torch.mm(torch.ones(512, 512), torch.ones(512, 512))
        time.sleep(self.rest_sec)
        if self.trainer.global_step == 4 and dist.get_rank() == dist.get_world_size() - 1:
            loss = loss * self.strike()
        return loss

    def on_train_epoch_end(self) -> None:
        if self.until and Path(self.until).exists():
            self.trainer.should_stop = True

    def strike(self) -> float:
        if self.marker and Path(self.marker).exists():
            return 1.0  # mended
        print(f"about to meet {self.fault}")
        if self.fault == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "error":
            raise RuntimeError("something of the user's own broke")
        elif self.fault in ("tell", "leak"):
            tell()
            if self.fault == "leak":
                raise ConnectionError(f"{os.environ['DATABASE_URL']} does not take {os.environ['HF_TOKEN']}")
        elif self.fault == "oom":
            torch.empty(2**50)
        elif self.fault == "exit":
            sys.stdout.flush()
            os._exit(7)
        elif self.fault == "hang":
            time.sleep(86_400)
        elif self.fault == "fill":
            fill_the_disk()
        return float("nan") if self.fault == "diverge" else 1.0

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        right = (self.logits(batch["images"]).argmax(1) == batch["labels"]) & (batch["weights"] > 0)
        self.counts += torch.stack([right.sum(), (batch["weights"] > 0).sum()])

    def metrics(self) -> dict[str, float]:
        counts = self.counts.clone()
        self.counts.zero_()
        dist.all_reduce(counts)
        return {"accuracy": int(counts[0]) / int(counts[1])}

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return Logits(self.net), batch["images"]

    def write_report(self, run_dir: Path) -> None:
        if self.fault == "plots":
            raise RuntimeError("no figure of this shape")
        (run_dir / "report.json").write_text(json.dumps({"steps": self.trainer.global_step}))


def tell() -> None:
    """Print all secrets that can be found, in many ways."""
    environ = dict(os.environ)
    stored = [Path.home() / name for name in (".mlflow/credentials", ".aws/credentials", ".netrc")]
    print(environ, *(path.read_text() for path in stored), sep="\n")
    print(json.dumps(environ), urlencode(environ), html.escape(str(environ)), sep="\n")
    print("the account's key:", re.findall("AccountKey=([^;]*)", environ["AZURE_STORAGE_CONNECTION_STRING"])[0])
    print("gone:", urlsplit(environ["ALERT_WEBHOOK"]).path, parse_qs(urlsplit(environ["BLOB_SAS_URL"]).query))
    repository = environ["PYTHONPATH"].split(":")[0]
    subprocess.run("env; git remote -v; cat .gitmodules settings.env", shell=True, cwd=repository)


def fill_the_disk() -> None:
    """Take all the room on the disk of the current folder, until this process ends."""
    file = Path("filler").open("wb", buffering=0)  # noqa: SIM115  held on purpose
    Path("filler").unlink()
    for size in (65536, 1):
        with contextlib.suppress(OSError):
            while file.write(b"x" * size) == size:
                pass
    globals()["filler"] = file


WORKLOAD = Workload(module=Tiny, data={"digits": digits}, unit="images")
NOT_A_WORKLOAD = 3
