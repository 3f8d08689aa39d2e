"""The shipper: seals finished hot files into Parquet, in a lake beside or through a collector.

The client process itself never imports this package: shipping runs in a process of its own.
"""
