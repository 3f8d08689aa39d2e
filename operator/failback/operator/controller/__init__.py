"""The kopf handlers and the passes they start: observe, decide, carry out, repeat.

Decisions are made in ``planning``; here is what a pass does and in which order.
"""
