"""Mosaics of files that were never on a disk: what becomes of assets, rows in parts and inline bytes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from periplus.arrange import arrange
from periplus.errors import ConflictError
from periplus.model import Georeference, Inline, Refs
from periplus.testing.indexes import inline_list


def test_assets_are_not_mixed(make: SimpleNamespace) -> None:
    entries = [make.entry(f"/d/{band}.tif", make.image(), series=band) for band in ("red", "nir")]
    with pytest.raises(ConflictError, match="a mosaic has files of one asset, and these are of red, nir"):
        arrange(entries, make.lookup(entries), kind="mosaic", duplicates="last")
    assert arrange(entries[:1], make.lookup(entries), kind="mosaic").kind == "mosaic"


def test_inline_bytes_and_parts_keep_their_rows(make: SimpleNamespace) -> None:
    places = [Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 640.0 * n, 0.0, -10.0, 0.0)) for n in range(2)]
    entries = [make.entry(f"/d/{n}.tif", make.image(georeference=place)) for n, place in enumerate(places)]
    plain = make.lookup(entries)

    def refs(number: int, which: int) -> Refs:
        found = plain(number, which)
        if number == 0:
            return found
        inline = Inline.of([b"x", None, None, b"y"])
        length = np.array([1, 9, 9, 1])
        return replace(found, length=length, part=np.arange(4, dtype=np.uint16), inline=inline)

    ((name, rows),) = arrange(entries, refs, kind="mosaic").blocks
    assert name == "0/data"
    assert rows.chunk.tolist() == [[0] * 8, [0, 0, 1, 1] * 2, [0, 1, 0, 1, 2, 3, 2, 3]]
    assert rows.file is not None
    assert rows.file.tolist() == [0, 0, 0, 0, -1, 1, 1, -1]
    assert rows.part is not None
    assert rows.part.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert inline_list(rows) == [None] * 4 + [b"x", None, None, b"y"]
