"""What a cluster looks like to the harness: members, processes, roles, and the calls that ask.

Nothing here changes a cluster, except the contract in ``target``.
"""
