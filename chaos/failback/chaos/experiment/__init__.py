"""The experiment file: its fields, its checks, the schedule, the generated experiment. Pure.

Which faults there are is in ``faults.catalogue``; what they do is in the faults' own modules.
"""
