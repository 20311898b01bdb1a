"""JPEG: one image a file, in bands where restart markers allow it."""
