"""What every command uses: errors and exit codes, output, options, bundled files."""
