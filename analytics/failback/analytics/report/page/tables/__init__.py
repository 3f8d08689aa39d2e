"""Every table of a report, declared once: what its files hold, and what its page shows of it.

A table names its columns in ``story``, ``again``, ``harm``, ``advice``, ``over_time`` and ``card``;
``registry`` prints any of them as CSV, Parquet, cells of a page, and Markdown.
"""
