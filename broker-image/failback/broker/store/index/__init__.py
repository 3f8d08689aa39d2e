"""The index of keys: its file format, its hashes, its row of files, and looking a key up.

Nothing of it is on the append path.
"""
