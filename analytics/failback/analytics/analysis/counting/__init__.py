"""What is counted per queue and group before causes are asked for. Pure."""
