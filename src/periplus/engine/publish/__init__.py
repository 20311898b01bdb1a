"""Conventions written to Zarr hierarchies, Datasets and DataTrees."""
