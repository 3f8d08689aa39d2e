"""The report of a run: document, checks and verdict, summary, comparison, metrics file.

Figures per group are in ``measures``, HTML and plots in ``page``; counts and causes come from
``analysis``.
"""
