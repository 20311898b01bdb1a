"""CF: links between variables, and the attributes of times, transforms and grid mappings."""
