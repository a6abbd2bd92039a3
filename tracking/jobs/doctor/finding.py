"""What was found of one thing that a run needs."""

from __future__ import annotations

from dataclasses import dataclass

from tracking.base.safe_text import printable


@dataclass(frozen=True)
class Finding:
    what: str
    words: str
    ok: bool = True
    tip: bool = False  # A run does without what the words advise, but slower.

    @property
    def safe_words(self) -> str:
        """In one line, which an error of NCCL's, say, is not, and without secrets."""
        return printable(" ".join(self.words.split()))

    def __str__(self) -> str:
        label = "FIX" if not self.ok else "TIP" if self.tip else "ok "
        return f"{label}  {self.what}: {self.safe_words}"
