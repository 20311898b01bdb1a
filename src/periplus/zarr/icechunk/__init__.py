"""Icechunk repositories: read as an index, and written from one."""
