"""Published figures with their sources, as tables of their own or beside a report's settings.

The figures are rows of the CSV files under `references/`, as printed in their sources.
"""

from tracking.analysis.published import comparison, reference_tables, studies

__all__ = ["comparison", "reference_tables", "studies"]
