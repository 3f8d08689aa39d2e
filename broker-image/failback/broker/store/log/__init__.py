"""The commit log and its mapped files, records, the tail, the checkpoint.

Nothing here knows consume queues.
"""
