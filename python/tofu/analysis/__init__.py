"""Strategies from descriptions: symbolic analysis and the strategy table.

Example:
    >>> from tofu.analysis import row_for
    >>> row = row_for("dot", {}, [(4, 6), (6, 8)], [(4, 8)])
    >>> [row["vars"][v]["name"] for v in row["splittable"]]
    ['i0', 'j0', 'k']

docs/tdl.md shows the analysis, docs/formats.md the table.
"""

from tofu.analysis.result import Analysis, Strategy
from tofu.analysis.strategies import analyze
from tofu.analysis.table import TABLE_VERSION, document, row_for

__all__ = ["TABLE_VERSION", "Analysis", "Strategy", "analyze", "document", "row_for"]
