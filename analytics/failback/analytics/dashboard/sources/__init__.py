"""What the dashboard reads: brokers, runtimes, custom resources, run folders, a collector.

Nothing here is written anywhere.
"""
