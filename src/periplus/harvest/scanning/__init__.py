"""Scan files: many at a time, with few requests."""
