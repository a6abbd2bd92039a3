"""The result of one check of something that a run needs."""

from __future__ import annotations

from dataclasses import dataclass

from tracking.base.safe_text import printable


@dataclass(frozen=True)
class Finding:
    """One check: its subject, its result in words, and whether it passed."""

    what: str
    words: str
    ok: bool = True
    tip: bool = False  # The run works without the advice, but slower.

    @property
    def safe_words(self) -> str:
        """The words in one line and without secrets; an error of NCCL has several lines."""
        return printable(" ".join(self.words.split()))

    def __str__(self) -> str:
        label = "FIX" if not self.ok else "TIP" if self.tip else "ok "
        return f"{label}  {self.what}: {self.safe_words}"
