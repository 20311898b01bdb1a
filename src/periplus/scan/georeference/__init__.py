"""Georeferences that several formats share: GeoTIFF keys, GMLJP2, world files and WKT."""
