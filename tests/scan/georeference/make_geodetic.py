"""Rewrites src/periplus/scan/geodetic.psv from the EPSG data that pyproj carries; run it when EPSG grows."""

from pathlib import Path

from pyproj import CRS
from pyproj.database import query_crs_info
from pyproj.enums import PJType

TARGET = Path(__file__).parents[3] / "src" / "periplus" / "scan" / "geodetic.psv"


def rows() -> list[str]:
    """E|code|name|semi-major axis|inverse flattening, M|code|name|degrees, D|code|name|E|M, C|code|name|D.

    L|code|name|metres|codes of the projected systems in this unit, for units other than the metre.
    """
    ellipsoids, meridians, datums, systems = {}, {}, {}, {}
    kinds = [PJType.GEOGRAPHIC_2D_CRS, PJType.GEOGRAPHIC_3D_CRS]
    for info in query_crs_info(auth_name="EPSG", pj_types=kinds, allow_deprecated=True):
        crs = CRS.from_epsg(int(info.code))
        datum, ellipsoid, meridian = crs.datum, crs.ellipsoid, crs.prime_meridian
        ids = [part.to_json_dict().get("id", {}).get("code") for part in (datum, ellipsoid)]
        if None in ids:
            continue
        degrees = meridian.longitude * meridian.unit_conversion_factor / 0.017453292519943295
        number = meridian.to_json_dict().get("id", {}).get("code", 8901)
        ellipsoids[ids[1]] = f"{ellipsoid.name}|{ellipsoid.semi_major_metre!r}|{ellipsoid.inverse_flattening!r}"
        meridians[number] = f"{meridian.name}|{round(degrees, 12)!r}"
        datums[ids[0]] = f"{datum.name.removesuffix(' ensemble')}|{ids[1]}|{number}"
        if all(axis.unit_name in ("degree", "metre") for axis in crs.axis_info):
            systems[int(info.code)] = f"{crs.name}|{ids[0]}"
    units: dict[tuple[int, str, float], list[int]] = {}
    for info in query_crs_info(auth_name="EPSG", pj_types=PJType.PROJECTED_CRS, allow_deprecated=True):
        axis = CRS.from_epsg(int(info.code)).axis_info[0]
        if axis.unit_code != "9001":
            unit = int(axis.unit_code), axis.unit_name, axis.unit_conversion_factor
            units.setdefault(unit, []).append(int(info.code))
    lengths = {
        code: f"{name}|{factor!r}|{' '.join(map(str, sorted(own)))}" for (code, name, factor), own in units.items()
    }
    tables = (("E", ellipsoids), ("M", meridians), ("D", datums), ("C", systems), ("L", lengths))
    return [f"{kind}|{code}|{table[code]}" for kind, table in tables for code in sorted(table)]


if __name__ == "__main__":
    TARGET.write_text("\n".join(rows()) + "\n")
