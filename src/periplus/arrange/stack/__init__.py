"""stack: files of one grid become one array with a new leading dimension."""
