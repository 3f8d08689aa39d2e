"""Words for people, alike everywhere: numbers, reasons, misspelt names, pages of help. Pure."""
