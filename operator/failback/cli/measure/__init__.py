"""Commands that measure: trace, report, explain-offset, predict."""
