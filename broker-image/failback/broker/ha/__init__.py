"""Commit log replication between a master and its slaves."""
