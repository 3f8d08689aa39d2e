"""What a run writes down: witnesses, samplers, and the proof steps of every fault.

Nothing here injects anything.
"""
