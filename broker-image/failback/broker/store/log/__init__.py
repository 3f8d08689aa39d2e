"""The commit log: mapped files, records, the tail, the checkpoint.

Nothing here knows consume queues or the index.
"""
