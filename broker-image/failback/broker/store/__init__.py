"""The message store of one broker, on the disk format of RocketMQ 4.9.

``message_store`` is the entry. Nothing here knows requests, clients or replication.
"""
