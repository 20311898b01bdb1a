"""An index as a Zarr store, kerchunk references, an Icechunk repository or VirtualiZarr manifests; and Zarr codecs."""
