"""How a program of ours begins: its command line, and the lines of its log."""
