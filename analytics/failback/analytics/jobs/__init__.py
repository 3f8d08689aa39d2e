"""Programs around the engines: the command ``failback lake``, and the job of ``spark-submit``.

What they compute is in ``analysis``, ``report`` and ``lake``.
"""
