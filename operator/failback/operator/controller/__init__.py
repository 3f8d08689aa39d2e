"""The kopf handlers and the passes they start: observe, plan, carry out, write the status.

Here is what a pass does and in which order; what it decides is in ``planning``.
"""
