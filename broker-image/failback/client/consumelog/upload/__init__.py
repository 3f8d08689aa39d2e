"""The shipper: seals finished hot files into Parquet, in a local lake or through a collector.

It runs in a process of its own; a client process imports at most ``beside``.
"""
