"""The report as a page: figures, tables and HTML, made from the document."""
