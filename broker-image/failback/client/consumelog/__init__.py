"""The consume log: the rows that every client writes, and their way into Parquet.

``schema`` names the tables and ``meanings`` explains them; ``hook`` and ``writer`` store rows so
that SIGKILL takes none; ``upload`` ships finished files. A client process never imports pyarrow.
"""
