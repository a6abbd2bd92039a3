"""Published figures, with their sources, as tables of their own or beside a report's settings.

The figures lie in CSV files under `references/`, a row each, as printed in their source.
"""

from __future__ import annotations

from tracking.analysis.published import comparison, reference_tables, studies

__all__ = ["comparison", "reference_tables", "studies"]
