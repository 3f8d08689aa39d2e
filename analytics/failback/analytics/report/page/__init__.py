"""The report as a page: plots, tables and HTML, made of ``report.json`` and its points only.

No figure is computed here; ``report.measures`` does.
"""
