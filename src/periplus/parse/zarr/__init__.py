"""The one reader of Zarr metadata documents, versions 2 and 3."""
