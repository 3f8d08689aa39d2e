"""One run from preparation to verdict, and the healing of a run that was killed.

Single faults are in ``faults``, Chaos Toolkit's functions in ``toolkit``.
"""
