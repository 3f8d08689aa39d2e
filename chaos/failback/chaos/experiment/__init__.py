"""What the YAML of an experiment allows, and the Chaos Toolkit experiment made of it. Pure."""
