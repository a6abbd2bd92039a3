"""MLflow's UI with a team's runs in it, on a server below a path, as a team has it behind a proxy."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from conf.launch_options import TrackingConfig
from tests.support import team_runs
from tests.support.mlflow_server import MlflowServer
from tracking.jobs.follow import sync
from tracking.jobs.follow.uploads import Uploads
from tracking.jobs.plan import sweep
from tracking.record import run_folder
from tracking.store import server
from tracking.store.mirror.mirror import Mirror

SENDERS = 2


@dataclass(frozen=True)
class TeamUi:
    """The server's address and the folders of all sweeps and runs."""

    uri: str
    folders: Sequence[Path]

    def sweep(self, model: str) -> Path:
        """The folder of the newest sweep over this model, by the time with which its name begins."""
        over_it = [folder for folder in self.folders if f"-{model}-" in folder.name]
        return max(
            (folder for folder in over_it if (folder / sweep.DEFINITION).exists()), key=lambda folder: folder.name
        )

    def run(self, model: str, words: str) -> Path:
        """The folder of a job of this model's sweep, by a part of its name."""
        [folder] = [candidate for candidate in self.sweep(model).iterdir() if words in candidate.name]
        return folder

    def links(self, model: str) -> dict[str, str]:
        """The links that the launcher prints at the end of this model's sweep, by the words before them."""
        folder, printed = self.sweep(model), io.StringIO()
        jobs = [path for path in run_folder.run_folders(folder) if path != folder]
        Uploads(TrackingConfig(uri=self.uri), Console(file=printed, width=200)).print_sweep(folder, jobs)
        return dict(re.findall(r"^ *(.+?): (http\S+)$", printed.getvalue(), re.MULTILINE))

    def page(self, folder: Path, tab: str = "") -> str:
        """The address of a run's page, or of one of its tabs."""
        mirrored = Mirror(folder)
        assert mirrored.experiment_id
        assert mirrored.run_id
        return server.run_link(self.uri, mirrored.experiment_id, f"{mirrored.run_id}/{tab}".removesuffix("/"))

    @property
    def experiment(self) -> str:
        """The address of all runs of the experiment, as MLflow shows them to who never looked at them."""
        return server.experiment_link(self.uri, str(Mirror(self.folders[0]).experiment_id))


@contextmanager
def running(root: Path) -> Iterator[TeamUi]:
    """Make the runs below `root` and serve them."""
    mlflow = MlflowServer(root, prefix="/team/mlflow")
    with ThreadPoolExecutor(SENDERS) as pool:
        started = pool.submit(mlflow.start)
        try:
            made = []
            for folders in team_runs.make(root / "runs", mlflow.uri):
                started.result()
                made.append(pool.submit(sync.sync, folders))
            outcomes = [outcome for sent in made for outcome in sent.result()]
            assert {outcome.state for outcome in outcomes} == {"complete"}
            assert len(outcomes) == team_runs.NUM_RUNS
            yield TeamUi(mlflow.uri, [outcome.folder for outcome in outcomes])
        finally:
            started.result()
            mlflow.kill()
