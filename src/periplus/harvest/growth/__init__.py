"""Append to an existing index: what stays, what can be added at its end, and what must be read again."""
