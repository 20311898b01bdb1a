"""collect: each file becomes a group of its own."""

from periplus.arrange.collect.collection import collect

__all__ = ["collect"]
