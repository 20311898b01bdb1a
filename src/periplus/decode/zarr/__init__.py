"""The codecs of Zarr itself, and those that numcodecs adds to it."""
