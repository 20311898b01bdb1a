"""A file system of references, with chunks of several byte ranges."""
