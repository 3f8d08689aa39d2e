"""What a resource needs next: pure functions from an observation to actions and a status.

Nothing here asks a broker or the API server; ``controller`` observes and carries out.
"""
