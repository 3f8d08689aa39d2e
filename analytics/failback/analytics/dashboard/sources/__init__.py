"""What the dashboard reads: brokers, runtimes, custom resources, run folders.

Nothing here is written anywhere.
"""
