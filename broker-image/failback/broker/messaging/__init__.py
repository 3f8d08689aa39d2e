"""What becomes of a message before it is stored: its topic, its delay, its transaction.

Requests and answers are in ``processors``, files in ``store``.
"""
