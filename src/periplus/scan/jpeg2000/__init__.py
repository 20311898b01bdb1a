"""JPEG 2000: codestreams and JP2 files, their tile-parts and resolutions."""
