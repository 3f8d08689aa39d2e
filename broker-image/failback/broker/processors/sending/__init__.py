"""Send requests: single sends, batches, send-backs, replies, ends of transactions.

Also here: when the answer to a stored message may go. What is allowed is decided in ``messaging``.
"""
