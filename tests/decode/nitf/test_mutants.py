"""Damaged NITF files of every kind, scanned and then decoded, give values of the right shape or our errors only."""

from collections.abc import Callable

import imagecodecs
import numpy as np
import pytest

from periplus.decode import prepare
from periplus.errors import PeriplusError
from periplus.limits import MIB, Limits
from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf import scan as nitf
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment
from periplus.testing.mutants import byte_mutants

LIMITS = Limits(chunk_bytes=16 * MIB)
VALUES = nitfs.values_of("u8", 1)
COLOURS = nitfs.values_of("u8", 3)
COUNT = 60


def coded(coding: str, values: np.ndarray, *streams: bytes, **options: object) -> bytes:
    return nitfs.nitf(ImageSegment(values=values, coding=coding, streams=streams, **options))


def jpeg(values: np.ndarray, **options: object) -> bytes:
    return imagecodecs.jpeg8_encode(np.ascontiguousarray(np.squeeze(np.moveaxis(values, 0, -1))), **options)


def pixels(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


FILES: dict[str, Callable[[], bytes]] = {
    "plain": lambda: nitfs.nitf(nitfs.case("plain-u16-P-tiles-3")),
    "packed": lambda: nitfs.nitf(nitfs.case("masked-u12-S-tiles-3")),
    "bits": lambda: nitfs.nitf(nitfs.case("masked-b1-B-tiles-1")),
    "complex": lambda: nitfs.nitf(nitfs.case("plain-c64-R-single-3")),
    "jpeg": lambda: coded("C3", COLOURS, jpeg(COLOURS, level=80), mode="P"),
    "jpeg12": lambda: coded("C3", nitfs.values_of("u12", 1), jpeg(nitfs.values_of("u12", 1), bitspersample=12),
                            kind="u12"),
    "blocks": lambda: coded("M3", np.tile(VALUES, 2), *[jpeg(VALUES)] * 2, block=(72, 90), masked=True, pad=1),
    "lossless": lambda: coded("C5", VALUES, jpeg(VALUES, lossless=True)),
    "downsampled": lambda: coded("I1", np.tile(VALUES, (1, 2, 2)), jpeg(VALUES)),
    "j2k": lambda: coded("C8", COLOURS, imagecodecs.jpeg2k_encode(pixels(COLOURS), level=0, codecformat="j2k")),
    "htj2k": lambda: coded("CD", COLOURS, imagecodecs.htj2k_encode(pixels(COLOURS))),
    "fax": lambda: coded("C1", nitfs.values_of("b1", 1), b"\0\1\xff" * 99, kind="b1", changes={"COMRAT": "2DS "}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FILES))
def test_mutants_are_read_or_refused(name):
    data = FILES[name]()
    number = list(FILES).index(name)
    read = refused = 0
    for mutant in [*byte_mutants(data, seed=number, count=COUNT), *nitfs.digit_mutants(data, seed=number, count=COUNT)]:
        try:
            steps = scan_bytes(mutant, scanner=nitf, limits=LIMITS)
        except PeriplusError:
            refused += 1
            continue
        for found in (step for step in steps if isinstance(step, Found)):
            read += decoded(mutant, found)
    assert read > 0
    assert refused > 0


def decoded(data: bytes, found: Found) -> int:
    """How many of the first few chunks of an array could be read."""
    array, refs = found.array, found.refs
    good = 0
    cells: dict[tuple[int, ...], list[int]] = {}
    for row, cell in enumerate(refs.chunk.T.tolist()[:8]):
        cells.setdefault(tuple(cell), []).append(row)
    for cell, rows in cells.items():
        code = 0 if refs.encoding is None else int(refs.encoding[rows[0]])
        ranges = [(int(refs.offset[row]), int(refs.length[row])) for row in rows]
        chunk = b"".join(data[offset : offset + length] for offset, length in ranges)
        starts = [n * size for n, size in zip(cell, array.chunks, strict=True)]
        valid = tuple(min(c, n - at) for c, n, at in zip(array.chunks, array.shape, starts, strict=True))
        try:
            values = prepare(array.encodings[code], chunks=array.chunks, dtype=array.dtype, limits=LIMITS)(
                chunk, valid=valid
            )
        except PeriplusError:
            continue
        assert values.dtype == array.dtype
        assert all(have >= need for have, need in zip(values.shape, valid, strict=True))
        good += 1
    return good
