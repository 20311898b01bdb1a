"""proj: coordinate reference systems, and which one a node declares."""
