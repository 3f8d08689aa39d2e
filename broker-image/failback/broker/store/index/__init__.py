"""The index file: keys and their hashes, its format, questions, and the files in order."""
