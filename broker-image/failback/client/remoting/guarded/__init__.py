"""Clusters that ask who comes: access keys and signatures, TLS, and what a refusal means."""
