"""Watches a cluster that Failback does not run, and tells what returns of masters cost groups."""
