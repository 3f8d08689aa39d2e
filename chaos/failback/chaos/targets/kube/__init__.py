"""A cluster on Kubernetes as a target: its members, exec into containers, guards, the Lease."""
