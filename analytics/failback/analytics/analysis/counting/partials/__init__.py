"""Counting: what one batch of rows contributes to a run's history. Pure.

Both engines call these functions, on different batches of the same rows, and add the results up:
interval rows by :func:`failback.analytics.analysis.arrays.intervals.sweep`, value rows by sum, max
or min. All operations are associative and commutative, so the batches do not matter.
"""
