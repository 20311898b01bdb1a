"""The fields of NITF headers and image subheaders, by name and width, for versions 2.0 and 2.1 (NSIF 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.scan.cursor import Cursor
from periplus.scan.nitf.tres import Tre, extension

MAGIC = {b"NITF02.10": "2.1", b"NITF02.00": "2.0", b"NSIF01.00": "2.1"}
"""First nine bytes, and the version whose fields follow; NSIF 1.0 is NITF 2.1 by another name."""
Fields = dict[str, Any]
Table = Sequence[tuple[str, int]]

_SECURITY_21 = (
    ("CLSY", 2), ("CODE", 11), ("CTLH", 2), ("REL", 20), ("DCTP", 2), ("DCDT", 8), ("DCXM", 4), ("DG", 1), ("DGDT", 8),
    ("CLTX", 43), ("CATP", 1), ("CAUT", 40), ("CRSN", 1), ("SRDT", 8), ("CTLN", 15),
)  # fmt: skip
_SECURITY_20 = (("CODE", 40), ("CTLH", 40), ("REL", 40), ("CAUT", 20), ("CTLN", 20), ("DWNG", 6))
EVENT = "999998"
"""The downgrade of a NITF 2.0 part that depends on an event, whose name follows."""
_FILE_START = (("CLEVEL", 2), ("STYPE", 4), ("OSTAID", 10), ("FDT", 14), ("FTITLE", 80), ("FSCLAS", 1))
_FILE_COPIES = (("FSCOP", 5), ("FSCPYS", 5), ("ENCRYP", 1))
_ORIGINATOR = {"2.1": (("ONAME", 24), ("OPHONE", 18)), "2.0": (("ONAME", 27), ("OPHONE", 18))}
_IMAGE_START = {
    "2.1": (("IID1", 10), ("IDATIM", 14), ("TGTID", 17), ("IID2", 80), ("ISCLAS", 1)),
    "2.0": (("IID1", 10), ("IDATIM", 14), ("TGTID", 17), ("ITITLE", 80), ("ISCLAS", 1)),
}
_IMAGE_SHAPE = (
    ("ENCRYP", 1), ("ISORCE", 42), ("NROWS", 8), ("NCOLS", 8), ("PVTYPE", 3), ("IREP", 8), ("ICAT", 8), ("ABPP", 2),
    ("PJUST", 1), ("ICORDS", 1),
)  # fmt: skip
_BAND = (("IREPBAND", 2), ("ISUBCAT", 6), ("IFC", 1), ("IMFLT", 3))
_IMAGE_END = (
    ("ISYNC", 1), ("IMODE", 1), ("NBPR", 4), ("NBPC", 4), ("NPPBH", 4), ("NPPBV", 4), ("NBPP", 2), ("IDLVL", 3),
    ("IALVL", 3), ("ILOC", 10), ("IMAG", 4),
)  # fmt: skip
SEGMENTS = {
    "2.1": (("NUMI", 6, 10), ("NUMS", 4, 6), ("NUMX", 0, 0), ("NUMT", 4, 5), ("NUMDES", 4, 9), ("NUMRES", 4, 7)),
    "2.0": (("NUMI", 6, 10), ("NUMS", 4, 6), ("NUML", 4, 3), ("NUMT", 4, 5), ("NUMDES", 4, 9), ("NUMRES", 4, 7)),
}
"""Counts of segments, with the widths of the lengths of each one's subheader and data."""
KINDS = {
    "NUMS": "graphic", "NUML": "label", "NUMT": "text", "NUMDES": "data extension", "NUMRES": "reserved extension"
}  # fmt: skip
"""What segments without images are, by the name of their count."""
MOST_BANDS = 99_999
PREFIX_BYTES = 400
"""Enough to hold the length of the header, with or without the event of a downgrade."""
OVERFLOWS = {"2.1": ("TRE_OVERFLOW",), "2.0": ("Registered Extensions", "Controlled Extensions")}
"""Names of data extension segments that hold tagged records."""
NUMBERS = frozenset({"NROWS", "NCOLS", "NBPR", "NBPC", "NPPBH", "NPPBV", "NBPP"})


@dataclass(frozen=True, slots=True)
class NitfSegment:
    """The position of a segment: its subheader and its data."""

    start: int
    head: int
    data: int
    """Bytes of the data, which follow the subheader."""


@dataclass(frozen=True, slots=True)
class NitfHeader:
    """The header of a file."""

    version: str
    fields: Fields
    images: tuple[NitfSegment, ...]
    others: tuple[tuple[str, NitfSegment], ...]
    """Segments that hold no image, and what they are."""
    tres: tuple[Tre, ...]
    overflows: tuple[int, ...] = ()
    """Numbers, from 1, of the data extension segments that have more of them."""

    @property
    def extensions(self) -> tuple[NitfSegment, ...]:
        """Data extension segments."""
        return tuple(segment for kind, segment in self.others if kind == KINDS["NUMDES"])


@dataclass(frozen=True, slots=True)
class NitfBand:
    """The fields of one band, and its look-up tables as stored."""

    fields: Fields
    luts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ImageSubheader:
    """The subheader of an image."""

    version: str
    fields: Fields
    comments: tuple[str, ...]
    corners: str | None
    """IGEOLO, where there is one."""
    bands: tuple[NitfBand, ...]
    tres: tuple[Tre, ...]
    overflows: tuple[int, ...] = ()
    file_tres: tuple[Tre, ...] = ()
    """Those of the file's header, which may hold for its images."""


def header_length(cursor: Cursor) -> tuple[str, int]:
    """The version, and how many bytes the header has, from its first bytes."""
    version = MAGIC.get(cursor.at(0).take(9))
    if version is None:
        raise FormatError("not a NITF file: the magic number is missing", offset=0)
    event = version == "2.0" and cursor.at(280).take(6) == EVENT.encode()
    length = cursor.at(394 if event else 354).digits(6, "HL")
    if length < PREFIX_BYTES - 20:
        raise FormatError(f"a header of {length} bytes cannot hold its fields", offset=354)
    return version, length


def header(cursor: Cursor, version: str) -> NitfHeader:
    """Every field of the header, and the positions of the segments."""
    magic = cursor.at(0).take(9).decode("ascii")
    fields: Fields = {"FHDR": magic[:4], "FVER": magic[4:], **texts(cursor, _FILE_START)}
    fields |= security(cursor, version, "FS")
    fields |= texts(cursor, _FILE_COPIES)
    if version == "2.1":
        fields["FBKGC"] = cursor.take(3).hex()
    fields |= texts(cursor, _ORIGINATOR[version])
    fields["FL"] = cursor.text(12)
    fields["HL"] = start = cursor.digits(6, "HL")
    images: list[NitfSegment] = []
    others: list[tuple[str, NitfSegment]] = []
    for name, head_width, data_width in SEGMENTS[version]:
        count = cursor.digits(3, name)
        fields[name] = count
        for _ in range(count if head_width else 0):
            lengths = (cursor.digits(width, f"a length after {name}") for width in (head_width, data_width))
            segment = NitfSegment(start, *lengths)
            start += segment.head + segment.data
            if name == "NUMI":
                images.append(segment)
            else:
                others.append((KINDS[name], segment))
    tres, overflows = _extensions(cursor, "UDHD", "XHD")
    return NitfHeader(version, fields, tuple(images), tuple(others), tres, overflows)


def subheader(cursor: Cursor, version: str, limits: Limits) -> ImageSubheader:
    """Every field of an image's subheader."""
    if cursor.at(0).take(2) != b"IM":
        raise FormatError("an image subheader does not begin with IM", offset=cursor.base)
    fields = texts(cursor, _IMAGE_START[version]) | security(cursor, version, "IS")
    fields |= texts(cursor, _IMAGE_SHAPE)
    if fields["ABPP"].isdecimal():
        # It is reported, but not needed; some files leave it blank.
        fields["ABPP"] = int(fields["ABPP"])
    located = fields["ICORDS"] not in (("", "N") if version == "2.0" else ("",))
    corners = cursor.take(60).decode("ascii", "replace") if located else None
    if corners is not None:
        fields["IGEOLO"] = corners
    comments = tuple(cursor.text(80) for _ in range(cursor.digits(1, "NICOM", blank=0)))
    fields["IC"] = cursor.text(2)
    if fields["IC"] not in ("NC", "NM"):
        fields["COMRAT"] = cursor.text(4)
    count = cursor.digits(1, "NBANDS")
    if count == 0 and version == "2.1":
        count = cursor.digits(5, "XBANDS")
    limits.check("the number of bands", count, MOST_BANDS)
    bands = tuple(_band(cursor) for _ in range(count))
    fields["NBANDS"] = count
    fields |= {name: [band.fields[name] for band in bands] for name, _ in _BAND}
    fields |= texts(cursor, _IMAGE_END)
    tres, overflows = _extensions(cursor, "UDID", "IXSHD")
    return ImageSubheader(version, fields, comments, corners, bands, tres, overflows)


def overflow(cursor: Cursor, version: str) -> bool:
    """Whether a data extension segment holds records that did not fit into a header, by its subheader."""
    if cursor.at(0).take(2) != b"DE":
        raise FormatError("a data extension subheader does not begin with DE", offset=cursor.base)
    return cursor.text(25) in OVERFLOWS[version]


def _extensions(cursor: Cursor, *names: str) -> tuple[tuple[Tre, ...], tuple[int, ...]]:
    """The extensions of the areas of a header, and the segments that have more."""
    areas = [extension(cursor, name) for name in names]
    return tuple(tre for tres, _ in areas for tre in tres), tuple(number for _, number in areas if number)


def _band(cursor: Cursor) -> NitfBand:
    fields = texts(cursor, _BAND)
    number = cursor.digits(1, "NLUTS", blank=0)
    length = cursor.digits(5, "NELUT") if number else 0
    return NitfBand(fields, tuple(cursor.take(length) for _ in range(number)))


def security(cursor: Cursor, version: str, prefix: str) -> Fields:
    """The fields of security that follow a classification."""
    if version == "2.1":
        return texts(cursor, _SECURITY_21, prefix)
    fields = texts(cursor, _SECURITY_20, prefix)
    if fields[f"{prefix}DWNG"] == EVENT:
        fields[f"{prefix}DEVT"] = cursor.text(40)
    return fields


def texts(cursor: Cursor, table: Table, prefix: str = "") -> Fields:
    """The fields of a table, by name."""
    return {
        prefix + name: cursor.digits(width, name) if name in NUMBERS else cursor.text(width) for name, width in table
    }
