"""The analysis of runs, and what shows it: report, predictor, dashboard, exporter, collector.

It reads run folders and lakes and imports neither the broker nor the operator nor the harness.
"""
