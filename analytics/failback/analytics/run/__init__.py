"""A run as the analysis reads it: folder, documents, history, clocks, log epochs.

What is counted and what caused a duplicate is in ``analysis``.
"""
