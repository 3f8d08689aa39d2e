"""What several commands use: exit codes, options, output, progress, folders, bundled files.

``asking`` finds and asks name servers and brokers. No command asks its user a question.
"""
