"""The job of ``spark-submit``: what ``failback report --engine spark`` computes, without pages.

What it computes is in ``analysis`` and ``report``.
"""
