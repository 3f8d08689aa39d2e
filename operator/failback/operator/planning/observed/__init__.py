"""What a pass has observed, as values, and facts that follow from it.

``None`` is "unknown", and nothing is destroyed because of it.
"""
