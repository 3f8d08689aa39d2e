"""Two ways to the same tables: ``local`` (numpy and Arrow in one process) and ``spark``.

What is counted and decided is shared: ``analysis.counting`` and ``analysis.causes``.
"""
