"""The report of a run: measures, document, checks, summary, comparison."""
