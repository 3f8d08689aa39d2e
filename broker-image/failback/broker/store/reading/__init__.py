"""Reading messages by queue and offset, with and without a filter, and offsets by time.

Nothing here changes the store.
"""
