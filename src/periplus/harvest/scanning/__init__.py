"""Files through their scanners: many at a time, with few requests."""
