"""A run as the analysis reads it: folder, documents, history, clocks, epochs."""
