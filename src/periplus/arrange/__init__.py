"""arrange: files into global arrays; descriptions and references in, a catalog and references out, without I/O."""

from periplus.arrange.arrangement import Arrangement, FileEntry, Lookup, Placement, files_table
from periplus.arrange.choose import KINDS, arrange
from periplus.arrange.collect import collect
from periplus.arrange.mosaic import mosaic
from periplus.arrange.stack import stack

__all__ = [
    "KINDS",
    "Arrangement",
    "FileEntry",
    "Lookup",
    "Placement",
    "arrange",
    "collect",
    "files_table",
    "mosaic",
    "stack",
]
