"""Rules of a message on its way: admission of topics, delay levels, half messages.

Requests and answers are in ``processors``, files in ``store``.
"""
