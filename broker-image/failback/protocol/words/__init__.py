"""Words for people, alike everywhere: numbers, misspelt names, pages of help. Pure."""
