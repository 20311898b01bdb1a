"""TIFF, BigTIFF and COG."""
