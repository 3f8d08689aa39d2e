"""The faults, one module each: parameters, action, proof of effect, undo.

``catalogue`` lists them, ``victims`` chooses who is hit. How a member is reached is in ``targets``.
"""
