"""The init of Failback's containers: a PID 1 that reaps, forwards signals, kills and holds.

SIGKILL does not reach a PID 1 from inside its container, and only a parent learns how a child died.
So every container runs its command as a child of this program. Standard library only.
"""
