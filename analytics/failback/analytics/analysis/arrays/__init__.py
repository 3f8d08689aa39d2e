"""Numbers in arrays: intervals, columns, thinning, hashes."""
