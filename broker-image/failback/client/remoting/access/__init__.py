"""Access control of 4.9, the "plain" one: accounts, their rights, and the check of each request.

The order of the checks, and what each says, are those of 4.9.8. Source: the module ``acl`` of
apache/rocketmq 4.9.8. A server without ``aclEnable`` loads none of it.
"""
