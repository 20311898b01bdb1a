"""VirtualiZarr: a parser for any file that can be indexed."""

from periplus.zarr.virtualizarr import Parser

__all__ = ["Parser"]
