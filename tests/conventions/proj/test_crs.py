"""proj: WKT2 before code before PROJJSON, contradictions are reported, arrays inherit from groups as a whole."""

import pyproj
import pytest

UTM = "EPSG:32633"


def wkt(code):
    return pyproj.CRS(code).to_wkt()


def read(store, **attributes):
    store.array("/a", ("y", "x"), (4, 5), "proj", **attributes)
    return store.read("/a")


def test_wkt2_is_taken_before_code_before_projjson(store, codes):
    json = pyproj.CRS(UTM).to_json_dict()
    all_three = read(store, proj__projjson=json, proj__code=UTM, proj__wkt2=wkt(UTM))
    assert (all_three.crs.form, all_three.crs.code, all_three.crs.text) == ("wkt2", UTM, wkt(UTM))
    assert read(store, proj__projjson=json, proj__code=UTM).crs.form == "code"
    only = read(store, proj__projjson=json)
    assert only.crs.form == "projjson"
    assert pyproj.CRS(only.crs.text) == pyproj.CRS(UTM)
    assert codes(all_three, all=True) == codes(only, all=True) == ["principal.none"]


def test_a_contradiction_is_reported_and_wkt2_wins(store, codes):
    meaning = read(store, proj__code=UTM, proj__wkt2=wkt("EPSG:4326"))
    assert (meaning.crs.form, meaning.crs.code) == ("wkt2", None)
    assert codes(meaning) == ["proj.conflict", "principal.none"]
    assert "proj:code and proj:wkt2 disagree" in meaning.diagnostics[0].message


def test_a_custom_crs_without_a_code_is_fine(store, codes):
    text = pyproj.CRS("+proj=laea +lat_0=51 +lon_0=9 +datum=WGS84").to_wkt()
    meaning = read(store, proj__wkt2=text)
    assert (meaning.crs.text, meaning.crs.code) == (text, None)
    assert codes(meaning) == ["principal.none"]


def test_the_order_of_axes_is_no_contradiction(store, codes):
    assert "proj.conflict" not in codes(read(store, proj__code="EPSG:4326", proj__wkt2=wkt("OGC:CRS84")))


@pytest.mark.parametrize(
    ("attributes", "code", "taken"),
    [
        ({"proj__wkt2": "nonsense", "proj__code": UTM}, "proj.unknown", "code"),
        ({"proj__wkt2": 5, "proj__code": UTM}, "proj.malformed", "code"),
        ({"proj__code": 32633}, "proj.code-form", "code"),
        ({"proj__code": "EPSG 32633"}, "proj.code-form", None),
        ({"proj__code": "EPSG:999999"}, "proj.unknown", None),
        ({"proj__projjson": [1]}, "proj.malformed", None),
        ({"proj__epsg": 32633}, "proj.epsg", "code"),
    ],
)
def test_what_is_not_understood_is_reported_and_the_next_form_is_tried(store, codes, attributes, code, taken):
    meaning = read(store, **attributes)
    assert code in codes(meaning)
    assert (meaning.crs and meaning.crs.form) == taken


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"proj__wkt2": pyproj.CRS("EPSG:4326").to_wkt("WKT1_GDAL")}, "proj.wkt1"),
        ({"proj__wkt2": None, "proj__code": UTM}, "proj.null"),
        ({"proj__projjson": pyproj.CRS(UTM).to_json()}, "proj.projjson-text"),
        ({"proj__code": UTM}, "proj.code-only"),
    ],
)
def test_older_and_poorer_forms_are_mild(store, codes, attributes, code):
    meaning = read(store, **attributes)
    assert code in codes(meaning, all=True)
    assert meaning.crs is not None
    assert codes(meaning) == ["principal.none"]


def test_a_group_lends_its_crs_as_a_whole_to_direct_children(store):
    store.group("/", "proj", proj__code=UTM)
    store.array("/a", ("y", "x"), (4, 5))
    store.array("/b", ("y", "x"), (4, 5), "proj", proj__wkt2=wkt("EPSG:4326"))
    store.array("/sub/c", ("y", "x"), (4, 5))
    assert store.read("/a").crs.code == UTM
    assert store.read("/a").crs.origin == "/"
    assert (store.read("/b").crs.form, store.read("/b").crs.code) == ("wkt2", None)
    assert store.read("/sub/c").crs is None


def test_codes_of_other_authorities_are_read(store):
    assert read(store, proj__code="IAU_2015:30100").crs.code == "IAU_2015:30100"


def test_an_undeclared_crs_is_ignored(store, codes):
    store.array("/a", ("y", "x"), (4, 5), proj__code=UTM)
    assert store.read("/a").crs is None
    assert "proj.undeclared" in codes(store.read("/a"))
    assert store.read("/a", strict=False).crs.code == UTM
