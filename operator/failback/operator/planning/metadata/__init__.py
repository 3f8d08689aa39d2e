"""Topic and SubscriptionGroup: what is to be written to which master.

Nothing is ever written to a slave: it copies its master's tables.
"""
