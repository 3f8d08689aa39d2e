"""The consume log: what every client, recorder and scanner writes, and how it becomes Parquet.

``schema`` names the tables, ``writer`` stores rows so that SIGKILL loses none, ``reader`` reads
them back, ``ship`` seals finished files into a lake on the same host, ``upload`` sends them to a
collector, ``beside`` runs either in a process of its own. Only ``lake_files`` and the schema's
Arrow side import pyarrow, and only when called, so a client process stays light.
"""
