"""The broker: store, replication, offsets and the request processors of one process."""
