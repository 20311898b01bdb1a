"""References, files and placements in Parquet: schemas, readers by byte ranges, writers."""
