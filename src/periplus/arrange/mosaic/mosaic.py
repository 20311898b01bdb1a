"""mosaic: files side by side become one array; elevation cells and images are laid by rules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from periplus.arrange.entry import Arrangement, Entry, Lookup
from periplus.arrange.misfits import judges
from periplus.arrange.mosaic.elevation import is_cell, lay_cells
from periplus.arrange.mosaic.images import lay_images
from periplus.arrange.mosaic.overlap import RULES
from periplus.errors import FormatError


def mosaic(
    entries: Sequence[Entry],
    refs: Lookup,
    *,
    duplicates: str = "error",
    order: str = "given",
    skip_misfits: bool = False,
    **_: Any,
) -> Arrangement:
    """Lay files where they lie on Earth; options of a stack mean nothing here.

    The first file (of the index that is added to, where there is one) decides what kind of mosaic it is; those of the
    other kind are its misfits.
    """
    if duplicates not in RULES:
        raise FormatError(f"duplicates of a mosaic is one of {', '.join(RULES)}, not {duplicates!r}")
    good = judges(entries, [i for i, entry in enumerate(entries) if entry.error is None])
    lay = lay_cells if good and is_cell(entries[good[0]].arrays) else lay_images
    return lay(entries, refs, duplicates=duplicates, order=order, skip_misfits=skip_misfits)
