"""The init of Failback's containers: PID 1 that reaps, forwards signals, kills and holds.

A process cannot be killed by SIGKILL from inside a container while it is PID 1, and only its parent
learns how it died. So every container starts ``failback-init -- COMMAND``: the command is a child,
``failback-init kill`` (run through exec) signals exactly that child, a hold file keeps it down, and
death records say how it went. Standard library only, and little of it: a broker's memory is the
broker's.
"""
