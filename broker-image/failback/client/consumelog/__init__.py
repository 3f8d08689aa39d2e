"""The consume log: what every client, recorder and scanner writes, and how it becomes Parquet.

``schema`` names the tables, ``writer`` stores rows so that SIGKILL loses none, ``reader`` reads
them back, ``ship`` seals finished files into the lake. Only ``ship`` and the schema's Arrow side
import pyarrow, and only when called, so a client process stays light.
"""
