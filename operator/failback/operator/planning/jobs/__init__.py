"""Experiments and reports: what their Jobs are, and what their results say. Pure."""
