"""The inputs of figures, from ``report.json`` and the points of a run. Pure.

The figures are drawn in ``page.figures``.
"""
