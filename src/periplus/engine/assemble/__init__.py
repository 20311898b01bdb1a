"""Arrays and their coordinates put together as one xarray Dataset or tree, for every engine."""
