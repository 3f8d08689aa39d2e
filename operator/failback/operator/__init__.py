"""Custom resources of Failback: models, rendering, planning, and the local runtime."""
