"""The consume log: the rows that every client writes, and their way into Parquet.

``schema`` names the tables, ``hook`` and ``writer`` store rows so that SIGKILL takes none, and
``upload`` ships finished files. A client process never imports pyarrow.
"""
