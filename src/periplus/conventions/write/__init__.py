"""Attributes of the conventions, to be written to nodes."""

from periplus.conventions.write.attributes import Layer, WrittenConventions, merged

__all__ = ["Layer", "WrittenConventions", "merged"]
