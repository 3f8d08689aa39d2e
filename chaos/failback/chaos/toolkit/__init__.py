"""The functions that Chaos Toolkit calls: actions, probes, controls, tolerances.

Actions are made of ``faults.catalogue``; they find the session and translate errors. What happens
is in ``faults`` and ``recorder``.
"""
