"""Requests of operators and tools: tables, cleaning, inspection, access, queries."""
