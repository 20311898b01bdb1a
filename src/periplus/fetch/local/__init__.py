"""Local files: reads, listings and atomic writes."""
