"""multiscales: the levels of a pyramid, their sizes and scales."""
