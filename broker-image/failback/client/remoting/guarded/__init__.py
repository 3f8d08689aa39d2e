"""Clusters with access control: access keys and signatures, TLS, and what a refusal means."""
