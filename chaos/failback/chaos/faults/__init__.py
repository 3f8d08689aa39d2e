"""The faults: what each does, how its effect is proved, how it is undone, who is hit.

How a member is reached is in ``targets``.
"""
