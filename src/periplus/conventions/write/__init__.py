"""Attributes of the conventions, to be written to nodes."""

from periplus.conventions.write.attributes import Layer

__all__ = ["Layer"]
