"""Names of codecs that Zarr does not define: scanning and arranging write them, decoding reads them."""

from __future__ import annotations

IMAGERY = "https://awslabs.github.io/osml-imagery-io/codecs/"
"""Where the imagery seed has its five codecs: by these names an index travels both ways between the implementations."""
JPEG2000 = IMAGERY + "jpeg2000"
JPEG = IMAGERY + "jpeg"
JBP_BLOCK = IMAGERY + "jbp-block"
TIFF_TILE = IMAGERY + "tiff-tile"
DTED = IMAGERY + "dted"

OURS = "periplus."
"""What neither Zarr nor the imagery codecs can express."""
PNG = OURS + "png"
VECTOR_QUANTISED = OURS + "vq"
PIPELINE = OURS + "pipeline"
"""Several codecs as one, for readers that want a single one."""
CROP = OURS + "crop"
"""Only the first part of a stored chunk is shown: `extent`, as exports and older documents spell it."""
PIECE = OURS + "piece"
"""A part of a stored chunk: `region`, as older documents spell it."""
UNPACK = OURS + "unpack"
"""Stored values become the physical ones they mean."""
