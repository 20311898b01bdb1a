"""Queries of an index: rows by box, time and chunk window; footprints; integrity."""
