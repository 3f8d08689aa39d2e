"""From a file or an object to a typed resource: loading, decoding, rules, CEL and CRDs."""
