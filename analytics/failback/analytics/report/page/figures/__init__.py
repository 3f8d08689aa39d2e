"""Figures of a report: one pure function each, from a frozen data class to a Plotly figure.

The same functions serve the self-contained ``report.html`` and the dashboard. No I/O and no
globals besides the palette. Every figure has a title that states its finding, units on its axes and
a table twin beside it in the page, so that colour alone says nothing: each report group has
its own colour (Okabe-Ito) *and* its own hatch.
"""
