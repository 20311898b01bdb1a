"""Collections of many files as columns: groups, families, and references of many arrays at once."""
