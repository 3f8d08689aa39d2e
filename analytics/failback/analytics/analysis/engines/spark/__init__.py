"""The Spark engine: numpy per Arrow batch, and what it says of them shuffled and added up.

:func:`why_not` says what is missing, :func:`session` starts or borrows a session,
:class:`SparkEngine` does the passes.
"""
