"""Programs around the engines: run each with ``python -m failback.analytics.jobs.<name>``."""
