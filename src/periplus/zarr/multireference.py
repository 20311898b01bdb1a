"""The file system of kerchunk references whose chunks may have several byte ranges."""

from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem

__all__ = ["MultiReferenceFileSystem"]
