"""The functions that Chaos Toolkit calls: actions, probes, controls, tolerances.

They find the session and translate errors; what happens is in ``faults`` and ``recorder``.
"""
