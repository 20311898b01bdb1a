"""kerchunk references: read as an index, and written from one."""
