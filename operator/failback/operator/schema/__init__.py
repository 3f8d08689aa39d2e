"""From a file or an object to a checked resource: loading, decoding, rules, CEL, CRDs.

The fields themselves are in ``kinds``.
"""
