"""ChaosExperiment and ReconsumptionReport: which Job is due, and what its result says.

The Jobs themselves are rendered in ``render``.
"""
