"""mosaic: georeferenced files become one array, side by side or over each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from periplus.arrange.arrangement import Arrangement, FileEntry, Lookup, readable
from periplus.arrange.compatibility import reference_files
from periplus.arrange.mosaic.elevation import is_elevation_cell, mosaic_elevation
from periplus.arrange.mosaic.images import mosaic_images

__all__ = ["mosaic"]


def mosaic(
    entries: Sequence[FileEntry],
    refs: Lookup,
    *,
    duplicates: str = "error",
    order: str = "given",
    skip_misfits: bool = False,
    **_: Any,
) -> Arrangement:
    """Arrange files by their georeference; options of a stack are ignored.

    The first file (of the index that files are appended to, if there is one) decides whether the mosaic is one of
    images or of elevation cells; files of the other kind do not fit.
    """
    good = reference_files(entries, readable(entries))
    arrange_files = mosaic_elevation if good and is_elevation_cell(entries[good[0]].arrays) else mosaic_images
    return arrange_files(entries, refs, duplicates=duplicates, order=order, skip_misfits=skip_misfits)
