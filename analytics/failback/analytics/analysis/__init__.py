"""From the rows of a run to counts and causes.

``arrays``, ``counting`` and ``causes`` are pure; ``engines`` reads the lake. Figures are made of
the results in ``report``.
"""
