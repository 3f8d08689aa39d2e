"""The faults, one module each: parameters, action, proof of effect, undo.

``catalogue`` lists them, ``victims`` chooses the broker or member that is hit. How a member is
reached is in ``targets``.
"""
