"""The experiment file: its fields, the fault catalogue, the schedule, the generated experiment.

Pure but for reading the file; nothing is injected here.
"""
