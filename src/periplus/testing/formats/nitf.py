"""A small NITF writer and seeded cases: every interleave, blocking, mask, pixel type and version we read."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.testing.formats.tiff import picture

HEIGHT, WIDTH = 72, 90
ABSENT = 0xFFFFFFFF
DIGITS = re.compile(rb"[0-9]+")
KINDS: dict[str, tuple[str, int, str]] = {
    "u8": ("INT", 8, "u1"),
    "u16": ("INT", 16, "u2"),
    "u32": ("INT", 32, "u4"),
    "u64": ("INT", 64, "u8"),
    "i8": ("SI", 8, "i1"),
    "i16": ("SI", 16, "i2"),
    "i12": ("SI", 12, "i2"),
    "u12": ("INT", 12, "u2"),
    "u4": ("INT", 4, "u1"),
    "i11": ("SI", 11, "i2"),
    "u20": ("INT", 20, "u4"),
    "u40": ("INT", 40, "u8"),
    "u1": ("INT", 1, "u1"),
    "b1": ("B", 1, "u1"),
    "f32": ("R", 32, "f4"),
    "f64": ("R", 64, "f8"),
    "c64": ("C", 64, "c8"),
}
"""PVTYPE, NBPP and the type of decoded values, by name."""
BLOCKINGS = {"single": (0, 0), "large": (96, 128), "tiles": (32, 48)}
"""Rows and columns of a block; 0 means the image's own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageSegment:
    """One image segment to write; `values` are (bands, y, x)."""

    values: NDArray[Any]
    kind: str = "u8"
    mode: str = "B"
    block: tuple[int, int] = (0, 0)
    absent: frozenset[int] = frozenset()
    """Numbers of blocks that the mask marks as absent."""
    masked: bool = False
    pad: int | None = None
    icords: str = " "
    igeolo: str = ""
    tres: bytes = b""
    overflow: int = 0
    """The number of the data extension segment with more tagged records."""
    luts: Sequence[bytes] = ()
    coding: str = ""
    streams: Sequence[bytes] | None = None
    """Encoded blocks instead of uncompressed ones."""
    changes: dict[str, str] = field(default_factory=dict)


def tre(tag: str, data: bytes) -> bytes:
    """One tagged record extension."""
    return tag.ljust(6).encode() + f"{len(data):05}".encode() + data


WIDTHS = {"NUMS": (4, 6), "NUML": (4, 3), "NUMT": (4, 5), "NUMDES": (4, 9), "NUMRES": (4, 7)}
"""Digits of the lengths of a segment's subheader and data, by the name of their count."""


def nitf(
    *pictures: ImageSegment,
    version: str = "NITF02.10",
    tres: bytes = b"",
    extensions: Sequence[bytes] = (),
    others: Mapping[str, Sequence[tuple[bytes, bytes]]] | None = None,
) -> bytes:
    """A file of these image segments; `extensions` are tagged records in data extension segments.

    `others` are subheaders and data of further segments, by the name of their count.
    """
    old = version == "NITF02.00"
    bodies = [_data(item) for item in pictures]
    heads = [_subheader(item, old=old) for item in pictures]
    lengths = "".join(f"{len(head):06}{len(body):010}" for head, body in zip(heads, bodies, strict=True))
    time = "16151629ZDEC02" if old else "20021216151629"
    start = f"{version}03BF01{'somewhere':10}{time}{'a title':80}U".encode() + b" " * 166 + b"00000000000"
    start += (
        b"someone".ljust(27) + b"+1 555".ljust(18) if old else b"\1\2\3" + b"someone".ljust(24) + b"+1 555".ljust(18)
    )
    area = f"{len(tres) + 3:05}000".encode() + tres if tres else b"00000"
    all_others: dict[str, Sequence[tuple[bytes, bytes]]] = {**dict.fromkeys(WIDTHS, ()), **(others or {})}
    all_others["NUMDES"] = [*(_extension(each, old=old) for each in extensions), *all_others["NUMDES"]]
    counts = ""
    for name, (head_digits, data_digits) in WIDTHS.items():
        sizes = (f"{len(head):0{head_digits}}{len(body):0{data_digits}}" for head, body in all_others[name])
        counts += f"{len(all_others[name]):03}" + "".join(sizes)
    more = [pair for name in WIDTHS for pair in all_others[name]]
    tail = f"{len(pictures):03}{lengths}{counts}".encode() + area + b"00000"
    head = len(start) + 18 + len(tail)
    parts = [part for pair in [*zip(heads, bodies, strict=True), *more] for part in pair]
    size = head + sum(map(len, parts))
    return b"".join([start, f"{size:012}{head:06}".encode(), tail, *parts])


def _extension(records: bytes, *, old: bool) -> tuple[bytes, bytes]:
    """Subheader and data of a segment of records that did not fit into the image's subheader."""
    name = "Registered Extensions" if old else "TRE_OVERFLOW"
    return f"DE{name:25}01U{'':166}UDID  0010000".encode(), records


def _subheader(item: ImageSegment, *, old: bool) -> bytes:
    bands, height, width = item.values.shape
    kind, bits, _ = KINDS[item.kind]
    rows, columns = _block(item)
    coding = item.coding or ("NM" if item.masked else "NC")
    fields = {
        "IM": "IM", "IID1": f"{'image':10}", "IDATIM": "16151629ZDEC02" if old else "20021216151629",
        "TGTID": " " * 17, "IID2": f"{'an image':80}", "ISCLAS": "U", "security": " " * 166, "ENCRYP": "0",
        "ISORCE": f"{'a camera':42}", "NROWS": f"{height:08}", "NCOLS": f"{width:08}", "PVTYPE": f"{kind:3}",
        "IREP": f"{'RGB/LUT' if item.luts else 'MULTI':8}", "ICAT": f"{'VIS':8}", "ABPP": f"{bits:02}", "PJUST": "R",
        "ICORDS": item.icords if not old or item.igeolo else "N", "IGEOLO": item.igeolo, "NICOM": "1",
        "ICOM": f"{'a comment':80}", "IC": coding, "COMRAT": "" if coding in ("NC", "NM") else "00.0",
        "NBANDS": f"{bands}" if bands < 10 else f"0{bands:05}",
    }  # fmt: skip
    lut = (f"{len(item.luts)}" + (f"{len(item.luts[0]):05}" if item.luts else "")).encode() + b"".join(item.luts)
    each = [f"{'LU' if item.luts else 'M':2}{f'B{band}':6}N{'':3}".encode() + lut for band in range(bands)]
    down, across = -(-height // rows), -(-width // columns)
    large = down == across == 1 and item.block == (0, 0)
    end = {
        "ISYNC": "0", "IMODE": item.mode, "NBPR": f"{across:04}", "NBPC": f"{down:04}",
        "NPPBH": "0000" if large and width > 8192 else f"{columns:04}",
        "NPPBV": "0000" if large and height > 8192 else f"{rows:04}", "NBPP": f"{bits:02}", "IDLVL": "001",
        "IALVL": "000", "ILOC": "0" * 10, "IMAG": "1.0 ",
        "UDIDL": f"{len(item.tres) + 3:05}{item.overflow:03}" if item.tres or item.overflow else "00000",
    }  # fmt: skip
    first, last = ("".join({**part, **_known(item.changes, part)}.values()).encode() for part in (fields, end))
    return b"".join([first, *each, last, item.tres, b"00000"])


def _known(changes: dict[str, str], part: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in changes.items() if name in part}


def _block(item: ImageSegment) -> tuple[int, int]:
    return item.block[0] or item.values.shape[1], item.block[1] or item.values.shape[2]


def _data(item: ImageSegment) -> bytes:
    """Blocks in order, with the mask in front where there is one."""
    blocks = list(blocks_of(item)) if item.streams is None else list(item.streams)
    if not item.masked:
        return b"".join(blocks)
    _, bits, _ = KINDS[item.kind]
    pad = b"" if item.pad is None else item.pad.to_bytes(-(-bits // 8), "big", signed=item.pad < 0)
    offsets, at = [], 0
    for number, block in enumerate(blocks):
        offsets.append(ABSENT if number in item.absent else at)
        at += 0 if number in item.absent else len(block)
    table = np.array(offsets, ">u4").tobytes()
    length = 10 + len(pad) + len(table)
    head = np.array([length], ">u4").tobytes() + np.array([4, 0, 0 if item.pad is None else bits], ">u2").tobytes()
    return head + pad + table + b"".join(block for number, block in enumerate(blocks) if number not in item.absent)


def blocks_of(item: ImageSegment) -> Sequence[bytes]:
    """The bytes of every block, in the order a file has them."""
    bands, height, width = item.values.shape
    rows, columns = _block(item)
    down, across = -(-height // rows), -(-width // columns)
    padded = np.zeros((bands, down * rows, across * columns), item.values.dtype)
    padded[:, :height, :width] = item.values
    turn = {"B": (0, 1, 2), "S": (0, 1, 2), "P": (1, 2, 0), "R": (1, 0, 2)}[item.mode]
    groups = [padded[band : band + 1] for band in range(bands)] if item.mode == "S" else [padded]
    return [
        _block_of(group[:, y * rows : (y + 1) * rows, x * columns : (x + 1) * columns].transpose(turn), item)
        for group in groups
        for y, x in itertools.product(range(down), range(across))
    ]


def _block_of(values: NDArray[Any], item: ImageSegment) -> bytes:
    """Bands that follow each other start at whole bytes."""
    return b"".join(_packed(part, item.kind) for part in (values if item.mode == "B" else [values]))


def _packed(values: NDArray[Any], kind: str) -> bytes:
    """Big endian; samples of other sizes than whole bytes are packed, most significant bit first."""
    _, bits, dtype = KINDS[kind]
    large = np.ascontiguousarray(values).astype(np.dtype(dtype).newbyteorder(">"))
    if bits == large.dtype.itemsize * 8:
        return large.tobytes()
    single = np.unpackbits(np.frombuffer(large.tobytes(), np.uint8)).reshape(-1, large.dtype.itemsize * 8)
    return np.packbits(single[:, -bits:]).tobytes()


def values_of(kind: str, bands: int = 3, shape: tuple[int, int] = (HEIGHT, WIDTH)) -> NDArray[Any]:
    """Seeded values of that pixel type."""
    _, bits, dtype = KINDS[kind]
    if dtype == "c8":
        return (picture("re", "f4", (bands, *shape)) + 1j * picture("im", "f4", (bands, *shape))).astype("c8")
    values = picture(f"nitf-{kind}-{bands}", dtype, (bands, *shape))
    return values >> (np.dtype(dtype).itemsize * 8 - bits) if bits < np.dtype(dtype).itemsize * 8 else values


def with_absent_blocks(item: ImageSegment, fill: Any) -> NDArray[Any]:
    """The values of a masked image: those of absent blocks are the fill."""
    values = item.values.copy()
    rows, columns = _block(item)
    bands, height, width = values.shape
    down, across = -(-height // rows), -(-width // columns)
    for number in item.absent:
        plane, place = divmod(number, down * across)
        y, x = divmod(place, across)
        which = slice(plane, plane + 1) if item.mode == "S" else slice(0, bands)
        values[which, y * rows : (y + 1) * rows, x * columns : (x + 1) * columns] = fill
    return values


def _cases() -> dict[str, Callable[[], ImageSegment]]:
    def plain(kind: str, mode: str, blocking: str, bands: int) -> ImageSegment:
        return ImageSegment(values=values_of(kind, bands), kind=kind, mode=mode, block=BLOCKINGS[blocking])

    def masked(kind: str, mode: str, blocking: str, bands: int) -> ImageSegment:
        item = plain(kind, mode, blocking, bands)
        absent = frozenset({1, 4, 7} if blocking == "tiles" else {1} if mode == "S" and bands > 1 else ())
        pad = None if kind in ("f32", "f64", "c64") else 1 if kind in ("u1", "b1") else 7 if kind == "u4" else 77
        return replace(item, masked=True, absent=absent, pad=pad)

    found: dict[str, Callable[[], ImageSegment]] = {}
    for kind, mode, blocking in itertools.product(KINDS, "BPRS", BLOCKINGS):
        for bands in (1, 3):
            for name, make in (("plain", plain), ("masked", masked)):
                key = f"{name}-{kind}-{mode}-{blocking}-{bands}"
                found[key] = lambda m=make, k=kind, i=mode, b=blocking, n=bands: m(k, i, b, n)  # type: ignore[misc]
    return found


@lru_cache(maxsize=1)
def _registry() -> dict[str, Callable[[], ImageSegment]]:
    return _cases()


def names() -> list[str]:
    """The names of all cases."""
    return list(_registry())


@lru_cache(maxsize=64)
def case(name: str) -> ImageSegment:
    """The image segment of that name."""
    return _registry()[name]()


def digit_mutants(data: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """Copies with one to three other numbers in digits, as NITF writes all its sizes."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    runs = [(found.start(), len(found[0])) for found in DIGITS.finditer(data)][:400]
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            start, length = rng.choice(runs)
            size = rng.randint(1, length)
            at = start + rng.randint(0, length - size)
            mutant[at : at + size] = rng.choice(
                (
                    b"9" * size,
                    b"0" * size,
                    b"1".rjust(size, b"0"),
                    b" " * size,
                    bytes(rng.choices(b"0123456789", k=size)),
                )
            )
        yield bytes(mutant)
