"""collect: every file is a group of its own."""
