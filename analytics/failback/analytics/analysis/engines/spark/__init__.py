"""The Spark engine: workers run numpy on each Arrow batch; Spark shuffles and adds the results.

``session`` starts or borrows a session, ``engine`` does the passes. Nothing here decides a cause.
"""
