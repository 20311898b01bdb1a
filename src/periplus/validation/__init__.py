"""Validation: a whole store against the conventions; findings, profiles, a deep look, and repairs."""
