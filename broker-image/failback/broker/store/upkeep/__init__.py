"""What keeps a store sound: opening, recovery, flushing, expiry.

Nothing here stores a message.
"""
