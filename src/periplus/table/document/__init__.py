"""The footer document: the catalog and the column roles of an index as versioned JSON."""
