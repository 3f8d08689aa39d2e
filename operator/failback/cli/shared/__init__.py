"""What every command uses: exit codes, options, output, progress, run folders, bundled files.

``asking`` finds and asks name servers and brokers. No command asks the person who typed it.
"""
