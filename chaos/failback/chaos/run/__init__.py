"""One run from preparation to verdict."""
