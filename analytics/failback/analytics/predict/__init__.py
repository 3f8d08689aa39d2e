"""``failback predict``: how much a fault would repeat, from settings and rates. Pure.

``prediction`` is the entry, ``keys`` the table of settings. Files are read by
``failback.cli.measure.predict``.
"""
