"""SQL92 filters: ``a > 5 AND (b = 'x' OR c IS NULL)`` over the properties of a message. Pure.

The grammar and the meaning are those of the filter module of apache/rocketmq 4.9.8, which come
from JMS selectors: three-valued logic, properties are texts that take the type they are compared
with. What can't be compared makes a message no match; :func:`compile_filter` refuses what can
never be right.
"""

from failback.broker.filters.sql92.parser import compile_filter

__all__ = ["compile_filter"]
