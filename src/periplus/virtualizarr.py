"""VirtualiZarr: a parser for any file that can be indexed, and indexes as ManifestStores."""

from periplus.zarr.virtualizarr import Parser, manifest_store

__all__ = ["Parser", "manifest_store"]
