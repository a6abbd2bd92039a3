"""Which of pytest's processes runs which file: with `--dist loadfile`, the files of one shared server go together."""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]


class TogetherByServer(LoadFileScheduling):
    """Files that use `team_server` are the work of one process, which starts PostgreSQL, MLflow and nginx once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
        self.of_team = {path.relative_to(ROOT).as_posix() for path, text in texts.items() if "team_server" in text}

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "team_server" if file in self.of_team else file
