"""The plots of a report: pure functions from rows of a table, or points, to a Plotly figure.

The same functions serve ``report.html`` and the dashboard. Each figure states its finding in its
title, units on its axes, and has a table twin, so that colour alone says nothing.
"""
