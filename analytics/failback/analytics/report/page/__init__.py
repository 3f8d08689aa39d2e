"""The report as a page: plots, tables and HTML, made of ``report.json`` and its points only."""
