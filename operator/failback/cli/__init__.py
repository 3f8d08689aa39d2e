"""The command ``failback``: one module per command, thin over the packages' public functions.

What a command decides is in its package; here are options, output and exit codes.
"""
