"""The operator of Failback's custom resources, and the local runtime of the same resources.

``planning`` decides and ``render`` makes objects, both pure; ``controller`` runs them against
Kubernetes, ``local`` against processes of one machine.
"""
