"""Which cause a duplicate has, and what was known about its offset. Pure.

Which deliveries are duplicates is found before, in ``counting`` and ``engines.candidates``.
"""
