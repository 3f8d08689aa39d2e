"""What a subscription lets through: tag hashes, SQL92 expressions, the record of each filter.

Messages are read through them in ``store.reading``.
"""
