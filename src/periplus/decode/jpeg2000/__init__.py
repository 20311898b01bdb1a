"""The jpeg2000 codec: tile-parts to samples, at any resolution."""
