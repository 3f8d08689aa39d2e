"""Facts about engine versions, as data: how each configuration key changes, and quirks.

No other module compares versions.
"""
