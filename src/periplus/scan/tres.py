"""Tagged record extensions of NITF: listed by tag and length, the common ones read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.errors import FormatError
from periplus.scan.cursor import Cursor

MOST_TRES = 4_096
_SIZES = (
    ("err_bias", 7), ("err_rand", 7), ("line_off", 6), ("samp_off", 5), ("lat_off", 8), ("long_off", 9),
    ("height_off", 5), ("line_scale", 6), ("samp_scale", 5), ("lat_scale", 8), ("long_scale", 9), ("height_scale", 5),
)  # fmt: skip
ORDERS = {"RPC00B": range(20), "RPC00A": (*range(7), 8, 9, 10, 7, 11, 14, 17, 12, 15, 18, 13, 16, 19)}
"""Where the terms of a polynomial of RPC00B stand in each record: in RPC00A those of second and third order differ."""
_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
_BLOCKA = (
    ("BLOCK_INSTANCE", 2), ("N_GRAY", 5), ("L_LINES", 5), ("LAYOVER_ANGLE", 3), ("SHADOW_ANGLE", 3), ("", 16),
    ("FRLC_LOC", 21), ("LRLC_LOC", 21), ("LRFC_LOC", 21), ("FRFC_LOC", 21),
)  # fmt: skip
_ICHIPB = (
    ("XFRM_FLAG", 2), ("SCALE_FACTOR", 10), ("ANAMRPH_CORR", 2), ("SCANBLK_NUM", 2),
    *((f"{where}_{axis}_{place}", 12) for where in ("OP", "FI") for place in ("11", "12", "21", "22")
      for axis in ("ROW", "COL")),
    ("FI_ROW", 8), ("FI_COL", 8),
)  # fmt: skip
_PIAIMC = (
    ("CLOUDCVR", 3), ("SRP", 1), ("SENSMODE", 12), ("SENSNAME", 18), ("SOURCE", 255), ("COMGEN", 2), ("SUBQUAL", 1),
    ("PIAMSNNUM", 7), ("CAMSPECS", 32), ("PROJID", 2), ("GENERATION", 1), ("ESD", 1), ("OTHERCOND", 2),
    ("MEANGSD", 7), ("IDATUM", 3), ("IELLIP", 3), ("PREPROC", 2), ("IPROJ", 2), ("SATTRACK", 8),
)  # fmt: skip
_USE00A = (
    ("ANGLE_TO_NORTH", 3), ("MEAN_GSD", 5), ("", 1), ("DYNAMIC_RANGE", 5), ("", 3), ("", 1), ("", 3), ("OBL_ANG", 5),
    ("ROLL_ANG", 6), ("", 12), ("", 15), ("", 4), ("", 1), ("", 3), ("", 1), ("", 1), ("N_REF", 2), ("REV_NUM", 5),
    ("N_SEG", 3), ("MAX_LP_SEG", 6), ("", 6), ("", 6), ("SUN_EL", 5), ("SUN_AZ", 5),
)  # fmt: skip
_STDIDC = (
    ("ACQUISITION_DATE", 14), ("MISSION", 14), ("PASS", 2), ("OP_NUM", 3), ("START_SEGMENT", 2), ("REPRO_NUM", 2),
    ("REPLAY_REGEN", 3), ("", 1), ("START_COLUMN", 3), ("START_ROW", 5), ("END_SEGMENT", 2), ("END_COLUMN", 3),
    ("END_ROW", 5), ("COUNTRY", 2), ("WAC", 4), ("LOCATION", 11), ("", 13),
)  # fmt: skip
_AIMIDB = (
    ("ACQUISITION_DATE", 14), ("MISSION_NO", 4), ("MISSION_IDENTIFICATION", 10), ("FLIGHT_NO", 2), ("OP_NUM", 3),
    ("CURRENT_SEGMENT", 2), ("REPRO_NUM", 2), ("REPLAY", 3), ("", 1), ("START_TILE_COLUMN", 3), ("START_TILE_ROW", 5),
    ("END_SEGMENT", 2), ("END_TILE_COLUMN", 3), ("END_TILE_ROW", 5), ("COUNTRY", 2), ("", 4), ("LOCATION", 11),
    ("", 13),
)  # fmt: skip
_CSDIDA = (
    ("DAY", 2), ("MONTH", 3), ("YEAR", 4), ("PLATFORM_CODE", 2), ("VEHICLE_ID", 2), ("PASS", 2), ("OPERATION", 3),
    ("SENSOR_ID", 2), ("PRODUCT_ID", 2), ("", 4), ("TIME", 14), ("PROCESS_TIME", 14), ("", 6), ("SOFTWARE_VERSION", 10),
)  # fmt: skip
_CSCRNA = (
    ("PREDICT_CORNERS", 1),
    *((f"{corner}CNR_{what}", width) for corner in ("UL", "UR", "LR", "LL")
      for what, width in (("LAT", 9), ("LONG", 10), ("HT", 8))),
)  # fmt: skip
_GEOLOB = (("ARV", 9), ("BRV", 9), ("LSO", 15), ("PSO", 15))
_MAPLOB = (("UNILOA", 3), ("LOD", 5), ("LAD", 5), ("LSO", 15), ("PSO", 15))
_GEOPSB = (
    ("TYP", 3), ("UNI", 3), ("DAG", 80), ("DCD", 4), ("ELL", 80), ("ELC", 3), ("DVR", 80), ("VDCDVR", 4), ("SDA", 80),
    ("VDCSDA", 4), ("ZOR", 15), ("GRD", 3), ("GRN", 80), ("ZNA", 4),
)  # fmt: skip
PLAIN: dict[str, Sequence[tuple[str, int]]] = {
    "AIMIDB": _AIMIDB,
    "BLOCKA": _BLOCKA,
    "CSCRNA": _CSCRNA,
    "CSDIDA": _CSDIDA,
    "GEOLOB": _GEOLOB,
    "GEOPSB": _GEOPSB,
    "ICHIPB": _ICHIPB,
    "MAPLOB": _MAPLOB,
    "PIAIMC": _PIAIMC,
    "STDIDC": _STDIDC,
    "USE00A": _USE00A,
}
"""Extensions that are a row of texts; a field without a name is reserved."""


@dataclass(frozen=True, slots=True)
class Tre:
    """One extension, as stored."""

    tag: str
    data: bytes


def extension(cursor: Cursor, name: str) -> tuple[tuple[Tre, ...], int]:
    """The extensions of one area of a header, and the number of the segment that has more of them; 0 for none."""
    length = cursor.digits(5)
    if length == 0:
        return (), 0
    if length < 3:
        raise cursor.error(f"the area {name} has {length} bytes, too few for its own fields")
    overflow = cursor.take(3)
    return tuple(listed(cursor.take(length - 3))), int(overflow) if overflow.isdigit() else 0


def listed(area: bytes) -> Iterable[Tre]:
    """Extensions one after another; one that does not fit ends the list, as what follows cannot be told apart."""
    at = 0
    for _ in range(MOST_TRES):
        length = area[at + 6 : at + 11]
        if len(length) < 5 or not length.isdigit() or at + 11 + int(length) > len(area):
            return
        yield Tre(area[at : at + 6].decode("ascii", "replace").strip(), area[at + 11 : at + 11 + int(length)])
        at += 11 + int(length)


def described(tres: Iterable[Tre]) -> list[dict[str, Any]]:
    """Tag and length of each, and the fields of those whose layout is plain."""
    found = []
    for tre in tres:
        note: dict[str, Any] = {"tag": tre.tag, "length": len(tre.data)}
        if (fields := fields_of(tre)) is not None:
            note["fields"] = fields
        found.append(note)
    return found


def fields_of(tre: Tre) -> dict[str, str] | None:
    """The texts of an extension whose layout is plain; None for others, and where it is too short."""
    layout = _projected(tre.data) if tre.tag == "PRJPSB" else PLAIN.get(tre.tag, ())
    if not layout or sum(width for _, width in layout) > len(tre.data):
        return None
    cursor = Cursor(tre.data)
    texts = [(name, cursor.text(width)) for name, width in layout]
    return {name: text for name, text in texts if name}


def _projected(data: bytes) -> Sequence[tuple[str, int]]:
    """The layout of PRJPSB, which has as many parameters as it says."""
    count = int(data[82:83]) if data[82:83].isdigit() else 0
    each = [(f"PRJ{number}", 15) for number in range(1, count + 1)]
    return (("PRN", 80), ("PCO", 2), ("NUM_PRJ", 1), *each, ("XOR", 15), ("YOR", 15))


def first(tres: Iterable[Tre], tag: str) -> dict[str, str] | None:
    """The fields of the first extension of that tag."""
    return next((fields for tre in tres if tre.tag == tag and (fields := fields_of(tre)) is not None), None)


def rpc(tres: Iterable[Tre]) -> dict[str, Any] | None:
    """Rational polynomial coefficients in the order of RPC00B, from the first record that says it is valid."""
    for tre in tres:
        if tre.tag in ORDERS:
            try:
                return _rpc(Cursor(tre.data), ORDERS[tre.tag])
            except FormatError:
                # A record that is not what its tag says is listed all the same, but tells nothing.
                continue
    return None


def _rpc(cursor: Cursor, order: Sequence[int]) -> dict[str, Any]:
    if cursor.digits(1) != 1:
        raise cursor.error("the record says that it holds no coefficients")
    found: dict[str, Any] = {name: _number(cursor, width) for name, width in _SIZES}
    for name in _COEFFICIENTS:
        terms = [_number(cursor, 12) for _ in range(20)]
        found[name] = [terms[place] for place in order]
    return found


def _number(cursor: Cursor, width: int) -> float:
    text = cursor.text(width)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise cursor.error(f"{text!r} is not a number")
    return value
