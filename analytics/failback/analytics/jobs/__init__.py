"""Programs around the engines: run each with ``python -m failback.analytics.jobs.<name>``.

What they compute is in ``analysis``, ``report`` and ``lake``.
"""
