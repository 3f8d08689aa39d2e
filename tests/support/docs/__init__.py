"""What tests of pages share: the YAML that readers copy."""
