"""The folder of a run: its files and their life, and the ledger of what must be undone.

The analytics reads it by its own code: ``failback.analytics.run``.
"""
