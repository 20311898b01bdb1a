"""The tiff-tile codec: strips and tiles of TIFF in all its compressions."""
