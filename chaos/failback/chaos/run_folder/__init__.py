"""The folder of a run: its files, and the ledger of what must be undone."""
