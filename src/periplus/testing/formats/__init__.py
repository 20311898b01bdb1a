"""Seeded files of every format, with the values they hold."""
