"""Two ways to the same tables: ``local`` (numpy and Arrow in one process) and ``spark``.

What is counted and decided is shared: ``analysis.counting`` and ``analysis.causes``. Which of the
two makes a report is chosen in ``report.make_report``.
"""
