"""An index as a read-only Zarr v3 store."""
