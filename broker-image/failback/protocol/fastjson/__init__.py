"""The JSON dialect of fastjson 1.2, which every Java peer writes and reads.

It differs from the standard in the keys of objects: integers stand there without quotes
(``{0:5}``), and whole objects may (``{{"queueId":3}:5}``). What it reads is wider yet, as people
and other clients write: single quotes, keys without quotes, commas too many, comments.
:func:`loads` reads any of it, :func:`read` what is known to be of a class, by fastjson's rules for
members of that class. :func:`dumps` writes keys in alphabetical order without blanks, and with
``pretty`` the form of the broker's configuration files (PrettyFormat of MapSerializer and
JavaBeanSerializer: a line per entry, except before entries whose key is an integer).

Object keys become and are written from tuples of sorted ``(name, value)`` pairs, or Structs.
"""

from __future__ import annotations

from failback.protocol.fastjson.reading import MAX_DEPTH, loads, with_quoted_keys
from failback.protocol.fastjson.typed import read
from failback.protocol.fastjson.writing import dumps

__all__ = ["MAX_DEPTH", "dumps", "loads", "read", "with_quoted_keys"]
