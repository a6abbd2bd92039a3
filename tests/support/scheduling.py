"""Which of pytest's processes runs which file: with `--dist loadfile`, files that share what takes long go together."""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]


# Words in a file of tests: the team's server (PostgreSQL, MLflow and nginx), and kernels that Triton interprets.
SHARED = ("team_server", "triton_on_cpu")


class TogetherByShared(LoadFileScheduling):
    """One process runs all files that share a server or computed tensors, and makes these once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
        self.shared = {
            path.relative_to(ROOT).as_posix(): word for path, text in texts.items() for word in SHARED if word in text
        }

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return self.shared.get(file, file)
