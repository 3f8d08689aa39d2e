"""What a cluster looks like to the harness: members, processes, facts, and the calls that ask.

Nothing here changes a cluster.
"""
