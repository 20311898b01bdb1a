"""Tagged record extensions (TREs) of NITF: listed by tag and length, with the fields of the common ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.model import RPC_COEFFICIENTS, RPC_NAMES
from periplus.scan.cursor import Cursor

MOST_TRES = 4_096
MOST_DESCRIBED = 262_144
"""Bytes of the extensions of one header whose fields are reported: more than any real header has."""
ORDERS = {"RPC00B": range(20), "RPC00A": (*range(7), 8, 9, 10, 7, 11, 14, 17, 12, 15, 18, 13, 16, 19)}
"""Positions of the terms of RPC00B in each record: RPC00A has those of second and third order in another order."""
RecordLayout = Sequence[tuple[str, int]]
"""Name and width of every field, in order; a field without a name is reserved."""
_TEXTS = {
    "ACFTB": (
        "AC_MSN_ID 20 AC_TAIL_NO 10 AC_TO 12 SENSOR_ID_TYPE 4 SENSOR_ID 6 SCENE_SOURCE 1 SCNUM 6 PDATE 8 IMHOSTNO 6 "
        "IMREQID 5 MPLAN 3 ENTLOC 25 LOC_ACCY 6 ENTELV 6 ELV_UNIT 1 EXITLOC 25 EXITELV 6 TMAP 7 ROW_SPACING 7 "
        "ROW_SPACING_UNITS 1 COL_SPACING 7 COL_SPACING_UNITS 1 FOCAL_LENGTH 6 SENSERIAL 6 ABSWVER 7 CAL_DATE 8 "
        "PATCH_TOT 4 MTI_TOT 3"
    ),
    "AIMIDB": (
        "ACQUISITION_DATE 14 MISSION_NO 4 MISSION_IDENTIFICATION 10 FLIGHT_NO 2 OP_NUM 3 CURRENT_SEGMENT 2 REPRO_NUM "
        "2 REPLAY 3 - 1 START_TILE_COLUMN 3 START_TILE_ROW 5 END_SEGMENT 2 END_TILE_COLUMN 3 END_TILE_ROW 5 COUNTRY 2 "
        "- 4 LOCATION 11 - 13"
    ),
    "BLOCKA": (
        "BLOCK_INSTANCE 2 N_GRAY 5 L_LINES 5 LAYOVER_ANGLE 3 SHADOW_ANGLE 3 - 16 FRLC_LOC 21 LRLC_LOC 21 LRFC_LOC 21 "
        "FRFC_LOC 21"
    ),
    "CSDIDA": (
        "DAY 2 MONTH 3 YEAR 4 PLATFORM_CODE 2 VEHICLE_ID 2 PASS 2 OPERATION 3 SENSOR_ID 2 PRODUCT_ID 2 - 4 TIME 14 "
        "PROCESS_TIME 14 - 6 SOFTWARE_VERSION_NUMBER 10"
    ),
    "CSEXRA": (
        "SENSOR 6 TIME_FIRST_LINE_IMAGE 12 TIME_IMAGE_DURATION 12 MAX_GSD 5 ALONG_SCAN_GSD 5 CROSS_SCAN_GSD 5 "
        "GEO_MEAN_GSD 5 A_S_VERT_GSD 5 C_S_VERT_GSD 5 GEO_MEAN_VERT_GSD 5 GSD_BETA_ANGLE 5 DYNAMIC_RANGE 5 NUM_LINES "
        "7 NUM_SAMPLES 5 ANGLE_TO_NORTH 7 OBLIQUITY_ANGLE 6 AZ_OF_OBLIQUITY 7 GRD_COVER 1 SNOW_DEPTH_CAT 1 "
        "SUN_AZIMUTH 7 SUN_ELEVATION 7 PREDICTED_NIIRS 3 CIRCL_ERR 3 LINEAR_ERR 3"
    ),
    "EXPLTB": (
        "ANGLE_TO_NORTH 7 ANGLE_TO_NORTH_ACCY 6 SQUINT_ANGLE 7 SQUINT_ANGLE_ACCY 6 MODE 3 - 16 GRAZE_ANG 5 "
        "GRAZE_ANG_ACCY 5 SLOPE_ANG 5 POLAR 2 NSAMP 5 - 1 SEQ_NUM 1 PRIME_ID 12 PRIME_BE 15 - 1 N_SEC 2 IPR 2"
    ),
    "GEOLOB": "ARV 9 BRV 9 LSO 15 PSO 15",
    "GEOPSB": "TYP 3 UNI 3 DAG 80 DCD 4 ELL 80 ELC 3 DVR 80 VDCDVR 4 SDA 80 VDCSDA 4 ZOR 15 GRD 3 GRN 80 ZNA 4",
    "MAPLOB": "UNILOA 3 LOD 5 LAD 5 LSO 15 PSO 15",
    "MENSRB": (
        "ACFT_LOC 25 ACFT_LOC_ACCY 6 ACFT_ALT 6 RP_LOC 25 RP_LOC_ACCY 6 RP_ELV 6 OF_PC_R 7 OF_PC_A 7 COSGRZ 7 RGCRP 7 "
        "RLMAP 1 RP_ROW 5 RP_COL 5 C_R_NC 10 C_R_EC 10 C_R_DC 10 C_AZ_NC 9 C_AZ_EC 9 C_AZ_DC 9 C_AL_NC 9 C_AL_EC 9 "
        "C_AL_DC 9 TOTAL_TILES_COLS 3 TOTAL_TILES_ROWS 5"
    ),
    "MSTGTA": (
        "TGT_NUM 5 TGT_ID 12 TGT_BE 15 TGT_PRI 3 TGT_REQ 12 TGT_LTIOV 12 TGT_TYPE 1 TGT_COLL 1 TGT_CAT 5 TGT_UTC 7 "
        "TGT_ELEV 6 TGT_ELEV_UNIT 1 TGT_LOC 21"
    ),
    "PATCHB": (
        "PAT_NO 4 LAST_PAT_FLAG 1 LNSTRT 7 LNSTOP 7 AZL 5 NVL 5 FVL 3 NPIXEL 5 FVPIX 5 FRAME 3 UTC 8 SHEAD 7 GRAVITY "
        "7 INS_V_NC 5 INS_V_EC 5 INS_V_DC 5 OFFLAT 8 OFFLONG 8 TRACK 3 GSWEEP 6 SHEAR 8 BATCH_NO 6"
    ),
    "PIAIMB": (
        "CLOUDCVR 3 SRP 1 SENSMODE 12 SENSNAME 18 SOURCE 255 COMGEN 2 SUBQUAL 1 PIAMSNNUM 7 CAMSPECS 32 PROJID 2 "
        "GENERATION 1 ESD 1 OTHERCOND 2"
    ),
    "PIAIMC": (
        "CLOUDCVR 3 SRP 1 SENSMODE 12 SENSNAME 18 SOURCE 255 COMGEN 2 SUBQUAL 1 PIAMSNNUM 7 CAMSPECS 32 PROJID 2 "
        "GENERATION 1 ESD 1 OTHERCOND 2 MEANGSD 7 IDATUM 3 IELLIP 3 PREPROC 2 IPROJ 2 SATTRACK 8"
    ),
    "STDIDC": (
        "ACQUISITION_DATE 14 MISSION 14 PASS 2 OP_NUM 3 START_SEGMENT 2 REPRO_NUM 2 REPLAY_REGEN 3 - 1 START_COLUMN 3 "
        "START_ROW 5 END_SEGMENT 2 END_COLUMN 3 END_ROW 5 COUNTRY 2 WAC 4 LOCATION 11 - 13"
    ),
    "STREOB": "ST_ID 60 N_MATES 1 MATE_INSTANCE 1 B_CONV 5 E_CONV 5 B_ASYM 5 E_ASYM 5 B_BIE 6 E_BIE 6",
    "USE00A": (
        "ANGLE_TO_NORTH 3 MEAN_GSD 5 - 1 DYNAMIC_RANGE 5 - 3 - 1 - 3 OBL_ANG 5 ROLL_ANG 6 - 12 - 15 - 4 - 1 - 3 - 1 - "
        "1 N_REF 2 REV_NUM 5 N_SEG 3 MAX_LP_SEG 6 - 6 - 6 SUN_EL 5 SUN_AZ 5"
    ),
}
"""Layouts of the common records of STDI-0002."""
_CORNERS = " ".join(f"{corner}CNR_LAT 9 {corner}CNR_LONG 10 {corner}CNR_HT 8" for corner in ("UL", "UR", "LR", "LL"))
_CHIP = " ".join(
    f"{where}_ROW_{place} 12 {where}_COL_{place} 12" for where in ("OP", "FI") for place in ("11", "12", "21", "22")
)
_TERMS = " ".join(f"{name.upper()}_{number} 12" for name in RPC_COEFFICIENTS for number in range(1, 21))
_RPC = (
    "SUCCESS 1 ERR_BIAS 7 ERR_RAND 7 LINE_OFF 6 SAMP_OFF 5 LAT_OFF 8 LONG_OFF 9 HEIGHT_OFF 5 LINE_SCALE 6 SAMP_SCALE 5"
    f" LAT_SCALE 8 LONG_SCALE 9 HEIGHT_SCALE 5 {_TERMS}"
)
_COUNTED = {
    "CSEPHA": (
        "EPHEM_FLAG 12 DT_EPHEM 5 DATE_EPHEM 8 T0_EPHEM 13 NUM_EPHEM 3", "EPHEM_X_{} 12 EPHEM_Y_{} 12 EPHEM_Z_{} 12", ""
    ),
    "J2KLRA": (
        "ORIG 1 NLEVELS_O 2 NBANDS_O 5 NLAYERS_O 3", "LAYER_ID_{} 3 BITRATE_{} 9", "NLEVELS_I 2 NBANDS_I 5 NLAYERS_I 3"
    ),
    "PRJPSB": ("PRN 80 PCO 2 NUM_PRJ 1", "PRJ{} 15", "XOR 15 YOR 15"),
}  # fmt: skip
"""Fields at the start, the last of which counts the groups that follow; the fields of a group; fields at the end."""


def _layout(text: str) -> RecordLayout:
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple((name.strip("-"), int(width)) for name, width in pairs)


PLAIN: dict[str, RecordLayout] = {
    **{tag: _layout(text) for tag, text in _TEXTS.items()},
    "CSCRNA": _layout(f"PREDICT_CORNERS 1 {_CORNERS}"),
    "ICHIPB": _layout(f"XFRM_FLAG 2 SCALE_FACTOR 10 ANAMRPH_CORR 2 SCANBLK_NUM 2 {_CHIP} FI_ROW 8 FI_COL 8"),
    "RPC00A": _layout(_RPC),
    "RPC00B": _layout(_RPC),
}


@dataclass(frozen=True, slots=True)
class Tre:
    """One extension, as stored."""

    tag: str
    data: bytes


def extension(cursor: Cursor, name: str) -> tuple[tuple[Tre, ...], int]:
    """The extensions of one area of a header, and the number of the segment that has more of them; 0 for none."""
    length = cursor.digits(5, f"the length of {name}", blank=0)
    if length == 0:
        return (), 0
    if length < 3:
        raise cursor.error(f"the area {name} has {length} bytes, too few for its own fields")
    overflow = cursor.take(3)
    return tuple(listed(cursor.take(length - 3))), int(overflow) if overflow.isdigit() else 0


def listed(area: bytes) -> Iterable[Tre]:
    """Extensions one after another; the list ends at one that does not fit."""
    at = 0
    for _ in range(MOST_TRES):
        length = area[at + 6 : at + 11]
        if len(length) < 5 or not length.isdigit() or at + 11 + int(length) > len(area):
            return
        yield Tre(area[at : at + 6].decode("ascii", "replace").strip(), area[at + 11 : at + 11 + int(length)])
        at += 11 + int(length)


def described(tres: Iterable[Tre]) -> list[dict[str, Any]]:
    """Tag and length of each, and the fields of those whose layout is known."""
    found = []
    described_bytes = 0
    for tre in tres:
        note: dict[str, Any] = {"tag": tre.tag, "length": len(tre.data)}
        if described_bytes + len(tre.data) <= MOST_DESCRIBED and (fields := fields_of(tre)) is not None:
            note["fields"] = fields
            described_bytes += len(tre.data)
        found.append(note)
    return found


def fields_of(tre: Tre) -> dict[str, str] | None:
    """The fields of an extension as text; None if its layout is unknown, or it is too short."""
    layout = layout_of(tre.tag, tre.data)
    if layout is None:
        return None
    cursor = Cursor(tre.data)
    texts = [(name, cursor.text(width)) for name, width in layout]
    return {name: text for name, text in texts if name}


def first(tres: Iterable[Tre], tag: str) -> dict[str, str] | None:
    """The fields of the first extension of that tag."""
    return next((fields for tre in tres if tre.tag == tag and (fields := fields_of(tre)) is not None), None)


def rpc(tres: Iterable[Tre]) -> dict[str, Any] | None:
    """Rational polynomial coefficients in the order of RPC00B, from the first record marked as valid."""
    for tre in tres:
        fields = fields_of(tre) if tre.tag in ORDERS else None
        if fields is None or fields["SUCCESS"] != "1":
            continue
        try:
            numbers = {name.lower(): finite(text) for name, text in fields.items()}
        except ValueError:
            # A damaged record is still listed, but ignored.
            continue
        terms = {name: [numbers[f"{name}_{place + 1}"] for place in ORDERS[tre.tag]] for name in RPC_COEFFICIENTS}
        return {**{name: numbers[name] for name in RPC_NAMES}, **terms}
    return None


def finite(text: str) -> float:
    """The finite number that a text holds, else ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def layout_of(tag: str, data: bytes) -> RecordLayout | None:
    """The layout of an extension; None if it is unknown, or the data are too short for it."""
    if tag in _COUNTED:
        start, each, end = _COUNTED[tag]
        known = _layout(start)
        at = sum(width for _, width in known)
        count = data[at - known[-1][1] : at]
        if not count.isdigit():
            return None
        found = [*known, *(pair for number in range(1, int(count) + 1) for pair in _layout(each.format(*[number] * 3)))]
        # The layers of the original image follow only if there was one.
        if tag != "J2KLRA" or _bytes(found) < len(data):
            found += _layout(end)
    elif tag in PLAIN:
        found = list(PLAIN[tag])
    else:
        return None
    return found if _bytes(found) <= len(data) else None


def _bytes(layout: RecordLayout) -> int:
    return sum(width for _, width in layout)
