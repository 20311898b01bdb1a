"""JPEG 2000 files of many layouts, made by GDAL, with tile-parts in other orders and headers changed."""

from __future__ import annotations

import base64
import io
import struct
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import prepare
from periplus.decode.jpeg2000.header import header_of
from periplus.limits import Limits
from periplus.model import Found
from periplus.scan.drive import scan_bytes

HEIGHT, WIDTH = 256, 384
LAYOUTS: dict[str, dict[str, Any]] = {
    "untiled": {},
    "untiled-rpcl": {"PROGRESSION": "RPCL"},
    "tiled": {"blockxsize": 128, "blockysize": 128},
    "tiled-odd": {"blockxsize": 100, "blockysize": 77, "PROGRESSION": "RLCP"},
    "tiled-tlm": {"blockxsize": 128, "blockysize": 64, "TLM": "YES"},
    "tiled-plt": {"blockxsize": 128, "blockysize": 64, "PLT": "YES", "PROGRESSION": "RLCP"},
    "plt-untiled": {"PLT": "YES", "PROGRESSION": "RPCL"},
    "plt-precincts": {"blockxsize": 100, "blockysize": 96, "PLT": "YES", "PROGRESSION": "RPCL",
                      "PRECINCTS": "{32,32},{16,16}", "QUALITY": "10,40,100", "TLM": "YES"},
    "parts-lrcp": {"blockxsize": 128, "blockysize": 128, "TILEPARTS": "RESOLUTIONS"},
    "parts-rlcp": {"blockxsize": 128, "blockysize": 128, "TILEPARTS": "RESOLUTIONS", "PROGRESSION": "RLCP"},
    "parts-rpcl": {"blockxsize": 128, "blockysize": 128, "TILEPARTS": "RESOLUTIONS", "PROGRESSION": "RPCL"},
    "parts-rpcl-tlm": {
        "blockxsize": 128, "blockysize": 128, "TILEPARTS": "RESOLUTIONS", "PROGRESSION": "RPCL", "TLM": "YES",
    },
    "parts-precincts": {
        "blockxsize": 128, "blockysize": 128, "TILEPARTS": "RESOLUTIONS", "PROGRESSION": "RPCL",
        "PRECINCTS": "{64,64},{32,32}", "SOP": "YES", "EPH": "YES",
    },
    "pcrl": {"blockxsize": 128, "blockysize": 128, "PROGRESSION": "PCRL"},
    "cprl": {"blockxsize": 128, "blockysize": 128, "PROGRESSION": "CPRL"},
    "layers-lrcp": {"blockxsize": 128, "blockysize": 128, "QUALITY": "10,40,100"},
    "layers-rpcl": {"blockxsize": 128, "blockysize": 128, "QUALITY": "10,40,100", "PROGRESSION": "RPCL"},
    "lossy": {"blockxsize": 128, "blockysize": 128, "QUALITY": "30", "REVERSIBLE": "NO", "PROGRESSION": "RPCL",
              "TILEPARTS": "RESOLUTIONS"},
    "boxed": {"CODEC": "JP2", "blockxsize": 128, "blockysize": 128},
}  # fmt: skip
"""Creation options of GDAL, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class TilePart:
    """One tile-part of a codestream, whole."""

    tile: int
    part: int
    data: bytes


@lru_cache(maxsize=32)
def picture(bands: int = 3, dtype: str = "u1", height: int = HEIGHT, width: int = WIDTH) -> NDArray[Any]:
    """Seeded values with slopes, edges and noise, over half the range of the type."""
    rng = np.random.default_rng(bands * 1000 + height)
    y, x = np.mgrid[:height, :width]
    info = np.iinfo(dtype)
    span = int(info.max) // 2
    planes = [(y * x // (7 + b) + rng.integers(0, 9 + b, y.shape) + 11 * b) % span for b in range(bands)]
    return (np.stack(planes) - (span // 2 if info.min < 0 else 0)).astype(dtype)


def made(values: NDArray[Any], **options: Any) -> bytes:
    """A file of (bands, y, x) values, lossless by default; `crs` and `transform` georeference it."""
    from rasterio.enums import ColorInterp
    from rasterio.errors import NotGeoreferencedWarning
    from rasterio.io import MemoryFile

    bands, height, width = values.shape
    own = {"CODEC": "J2K", "QUALITY": "100", "REVERSIBLE": "YES", "YCC": "NO", "RESOLUTIONS": 4, **options}
    if "blockxsize" in own:
        # Without this rasterio drops the block size; GDAL does not have the option and reports that in its log.
        own["tiled"] = True
    with warnings.catch_warnings(), MemoryFile() as memory:
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with memory.open(
            driver="JP2OpenJPEG", dtype=values.dtype, count=bands, height=height, width=width, **own
        ) as raster:
            if "YCBCR420" in own:
                raster.colorinterp = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
            raster.write(values)
        return bytes(memory.read())


@lru_cache(maxsize=32)
def layout(name: str) -> bytes:
    """The picture in one of the layouts."""
    return made(picture(), **LAYOUTS[name])


def found(data: bytes) -> list[Found]:
    """The arrays of a file, level by level."""
    return [item for item in scan_bytes(data) if isinstance(item, Found)]


def read(data: bytes, item: Found) -> NDArray[Any]:
    """A whole array, chunk by chunk, the ranges of each joined in their order."""
    array, refs = item.array, item.refs
    out = np.full(array.shape, 99, array.dtype)
    starts = [array.starts(d) for d in range(3)]
    part = np.zeros(len(refs), int) if refs.part is None else refs.part
    for place in sorted({tuple(place) for place in refs.chunk.T.tolist()}):
        at = np.flatnonzero((np.array(place) == refs.chunk.T).all(axis=1))
        rows: list[int] = at[np.argsort(part[at])].tolist()
        assert part[rows].tolist() == list(range(len(rows)))
        raw = b"".join(refs.inline_bytes(r) or data[refs.offset[r] : refs.offset[r] + refs.length[r]] for r in rows)
        box = tuple(slice(starts[d][n], starts[d][n + 1]) for d, n in enumerate(place))
        valid = tuple(int(s.stop - s.start) for s in box)
        chunks = valid if array.edges is not None else array.chunks
        code = 0 if refs.encoding is None else int(refs.encoding[rows[0]])
        decoder = prepare(array.encodings[code], chunks=chunks, dtype=array.dtype, limits=Limits())
        out[box] = decoder(raw, valid=valid)[:, : valid[1], : valid[2]]
    return out


def whole(data: bytes, level: int) -> NDArray[Any]:
    """All the bytes of every tile of a codestream, decoded at a level, as a Zarr codec is given them."""
    array = found(data)[0].array
    settings = [encoding.codecs[0]["configuration"] for encoding in array.encodings]
    name = array.encodings[0].codecs[0]["name"]
    header = header_of(base64.b64decode(settings[0]["main_header"]), level)
    right, bottom, left, top = (-(-place >> level) for place in header.size.grid[:4])
    out = np.full((header.count, bottom - top, right - left), 99, array.dtype)
    _, parts = split(data)
    for tile in {part.tile for part in parts}:
        bounds = header.size.bounds(tile, level)
        if bounds is None:
            continue
        shape = (header.count, bounds[3] - bounds[1], bounds[2] - bounds[0])
        own = {**settings[tile if len(settings) > 1 else 0], "resolution_level": level}
        decoder = prepare(({"name": name, "configuration": own},), chunks=shape, dtype=array.dtype, limits=Limits())
        mine = [part for part in parts if part.tile == tile]
        box = slice(bounds[1] - top, bounds[3] - top), slice(bounds[0] - left, bounds[2] - left)
        out[:, *box] = decoder(b"".join(part.data for part in mine), valid=shape)
    return out


def alike(values: NDArray[Any], others: NDArray[Any], *, exact: bool = True) -> bool:
    """Whether two decoders agree; where wavelets are floating point, but for the last bit of a few pixels."""
    if exact or values.shape != others.shape or values.dtype != others.dtype:
        return np.array_equal(values, others)
    apart = np.abs(values.astype(np.int64) - others.astype(np.int64))
    return int(apart.max()) <= 1 and float((apart > 0).mean()) < 0.001


def pillow(data: bytes, level: int = 0) -> NDArray[Any]:
    """What Pillow sees of a file at a lower resolution, as (bands, y, x)."""
    from PIL import Image
    from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile

    with Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, Jpeg2KImageFile)
        image.reduce = level
        image.load()
        values = np.asarray(image)
    return values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)


def split(codestream: bytes) -> tuple[bytes, list[TilePart]]:
    """The main header without its TLM, and every tile-part in file order."""
    position, header = 2, codestream[:2]
    while codestream[position : position + 2] != b"\xff\x90":
        (size,) = struct.unpack_from(">H", codestream, position + 2)
        if codestream[position : position + 2] != b"\xff\x55":
            header += codestream[position : position + 2 + size]
        position += 2 + size
    parts = []
    while codestream[position : position + 2] == b"\xff\x90":
        _, _, tile, size, part = struct.unpack_from(">HHHIB", codestream, position)
        size = size or len(codestream) - 2 - position
        parts.append(TilePart(tile, part, codestream[position : position + size]))
        position += size
    return header, parts


def interleaved(codestream: bytes) -> bytes:
    """The same tile-parts, first ones of all tiles first: encoders keep a tile's parts together, archives do not."""
    header, parts = split(codestream)
    return header + b"".join(p.data for p in sorted(parts, key=lambda p: (p.part, p.tile))) + b"\xff\xd9"


def tlm(codestream: bytes) -> bytes:
    """The codestream with a table of its tile-part lengths."""
    header, parts = split(codestream)
    rows = b"".join(struct.pack(">HI", p.tile, len(p.data)) for p in parts)
    table = struct.pack(">HHBB", 0xFF55, 4 + len(rows), 0, 0x60) + rows
    return header + table + b"".join(p.data for p in parts) + b"\xff\xd9"


def packed(codestream: bytes, *, main: bool) -> bytes:
    """A codestream with SOP and EPH markers, its packet headers moved to the main header (PPM) or the tiles' (PPT)."""
    header, parts = split(codestream)
    tables, moved = b"", []
    for number, part in enumerate(parts):
        start = part.data.index(b"\xff\x93") + 2
        heads = bodies = b""
        for packet in part.data[start:].split(b"\xff\x91\x00\x04")[1:]:
            # Two bytes of number, the packet header to its end marker, the body.
            end = packet.index(b"\xff\x92") + 2
            heads += packet[2:end]
            bodies += b"\xff\x91\x00\x04" + packet[:2] + packet[end:]
        own = struct.pack(">HHB", 0xFF61, 3 + len(heads), part.part) + heads
        if main:
            tables += struct.pack(">HHBI", 0xFF60, 7 + len(heads), number, len(heads)) + heads
            own = b""
        size = 12 + len(own) + 2 + len(bodies)
        start_of = struct.pack(">HHHI", 0xFF90, 10, part.tile, size) + part.data[10:12]
        moved.append(start_of + own + b"\xff\x93" + bodies)
    return header + tables + b"".join(moved) + b"\xff\xd9"


def giant(side: int = 2**31 - 1, tile: int | None = None) -> bytes:
    """A codestream of 140 bytes or so that promises side x side pixels."""
    data = bytearray(made(picture(1, "u1", 16, 16)))
    struct.pack_into(">4I", data, 8, side, side, 0, 0)
    struct.pack_into(">4I", data, 24, tile or side, tile or side, 0, 0)
    return bytes(data)
