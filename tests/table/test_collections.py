"""Collections as columns give the answers of a plain mapping of arrays, and refuse columns that make no sense."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.conventions.proj.crs import reproject_bbox
from periplus.errors import FormatError, LimitError, MissingError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Encoding, Georeference, GroundControlPoint
from periplus.read.choose import Images, pick
from periplus.table import memory_table, open_table, write_table
from periplus.table.collection.build import check_names, gathered
from periplus.table.collection.groups import GroupedArrays
from periplus.table.document.arrays import read_name
from periplus.table.parquet.buffers import strings
from periplus.testing.indexes import dense_refs, files_of
from periplus.testing.tamper import change_column, tamper

COUNT = 66
PLACES = {
    "utm": lambda n: Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 3e5 + 90.0 * n, 0.0, -10.0, 52e5 - 30.0 * n)),
    "other zone": lambda n: Georeference(crs="EPSG:32632", transform=(10.0, 0.0, 6e5 + 90.0 * n, 0.0, -10.0, 52e5)),
    "turned": lambda n: Georeference(crs="EPSG:32633", transform=(8.0, 6.0, 3e5 + 100.0 * n, 6.0, -8.0, 52e5)),
    "degrees": lambda n: Georeference(crs="EPSG:4326", transform=(0.5, 0.0, 150.0 + n, 0.0, -0.5, 50.0)),
    "points": lambda n: Georeference(
        crs="EPSG:32633",
        gcps=tuple(
            GroundControlPoint(column=c, row=r, x=3e5 + n // 9 * 100 + c, y=52e5 - r) for c in (0, 40) for r in (0, 40)
        ),
    ),
    "no CRS": lambda n: Georeference(transform=(10.0, 0.0, 3e5 + 90.0 * n, 0.0, -10.0, 52e5)),
    "nowhere": lambda n: None,
}


def image(place, number, level, name):
    size = 40 >> level
    where = PLACES[place](number)
    if where is not None and where.transform is not None:
        a, b, c, d, e, f = where.transform
        k = 2**level
        where = replace(where, transform=(a * k, b * k, c, d * k, e * k, f))
    return Array(
        name=name, dims=("y", "x"), shape=(size, size), chunks=(16, 16), dtype=np.dtype("u1"), level=level,
        encodings=(Encoding(({"name": "bytes"},)),), georeference=where,
    )  # fmt: skip


def both(places, times=True):
    """A table of images with their places in turn, as a plain mapping and as columns."""
    arrays, refs = {}, {}
    for number in range(COUNT):
        for level in range(2):
            name = f"set/{number:02}/{level}/data"
            arrays[name] = image(places[number % len(places)], number, level, name)
            held = dense_refs(arrays[name])
            refs[name] = replace(held, file=np.full(len(held), number, np.int32))
    arrays["odd/data"] = image("utm", 3, 0, "odd/data")
    refs["odd/data"] = replace(dense_refs(arrays["odd/data"]), file=np.full(9, COUNT, np.int32))
    group = np.array([*(f"set/{number:02}" for number in range(COUNT)), None], object)
    taken = np.datetime64("2021-01-01", "us") + np.arange(COUNT + 1).astype("m8[D]")
    files = replace(
        files_of([f"s3://bucket/{number}.tif" for number in range(COUNT + 1)]),
        datetime=taken if times else np.full(COUNT + 1, "NaT", "M8[us]"),
        columns={"group": group},
    )
    plain = Catalog(arrays=arrays, attributes={"set/03": {"a": 1}}, arrangement={"kind": "collect"})
    columns = gathered(plain, files, {})
    assert isinstance(columns.arrays, GroupedArrays)
    assert list(columns.arrays.plain) == ["odd/data"]
    # In the order of the columns: what is in no group first.
    plain = replace(plain, arrays={name: arrays[name] for name in columns.arrays})
    return memory_table(plain, refs, files), memory_table(columns, refs, files)


PAIRS = {
    names: both(names)
    for names in (
        ("utm",), ("utm", "other zone"), ("turned",), ("degrees",), ("utm", "points"), ("utm", "no CRS", "nowhere"),
        ("nowhere",),
    )
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _closed():
    yield
    for pair in PAIRS.values():
        for table in pair:
            table.close()


CORNERS = {None: (3.02e5, 51.99e5), "EPSG:32633": (3.02e5, 51.99e5), "EPSG:4326": (12.4, 46.9)}


@st.composite
def queries(draw):
    crs = draw(st.sampled_from(list(CORNERS)))
    x, y = CORNERS[crs]
    scale = 0.1 if crs == "EPSG:4326" else 3000.0
    if crs == "EPSG:4326" and draw(st.booleans()):
        x, y, scale = draw(st.sampled_from([-175.0, 149.0, 170.0])), 20.0, 60.0
    low = draw(st.floats(-1, 1)), draw(st.floats(-1, 1))
    size = draw(st.sampled_from([0.0, 0.1, 1.0, 3.0, 400.0])), draw(st.sampled_from([0.0, 0.1, 1.0, 3.0]))
    box = (x + low[0] * scale, y + low[1] * scale, x + (low[0] + size[0]) * scale, y + (low[1] + size[1]) * scale)
    asked = {"bbox": draw(st.sampled_from([*[box] * 12, None, (box[2] + 1, *box[1:])]))}
    if asked["bbox"] is not None and crs is not None:
        asked["crs"] = crs
    asked["level"] = draw(st.sampled_from([None, None, None, 0, 1, 5]))
    asked["time"] = draw(st.sampled_from([None, None, None, None, "2021-01", ("2021-01-03", "2021-02-05"), "1999"]))
    asked["window"] = draw(st.sampled_from([*[None] * 8, {"x": (1, 3)}, [(0, 1), (0, 1)], {"z": (0, 1)}, [(0, 1)]]))
    asked["footprints"] = draw(st.booleans())
    return asked


def answer(table, asked):
    try:
        return table.select(reproject=reproject_bbox, **asked).to_pydict()
    except (PeriplusError, ValueError) as error:
        return type(error)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(list(PAIRS)), queries())
def test_columns_select_what_a_mapping_of_arrays_does(names, asked):
    plain, columns = PAIRS[names]
    assert answer(columns, asked) == answer(plain, asked)


@pytest.mark.parametrize("names", PAIRS)
def test_views_of_arrays_and_their_grids_are_the_same(names):
    for view, name in (("arrays", "name"), ("grid", '"array"')):
        plain, columns = (table.sql(f"from {view} order by {name}") for table in PAIRS[names])
        assert columns.schema == plain.schema
        assert columns.to_pydict() == plain.to_pydict()


@pytest.mark.parametrize("names", PAIRS)
def test_images_are_found_by_name(names):
    plain, columns = (table.catalog for table in PAIRS[names])
    assert list(Images(columns)) == list(Images(plain))
    assert len(Images(columns)) == len(Images(plain)) == COUNT + 1
    for name in ("set/03", "set/03/data", "set/03/1/data", "odd/data", "odd"):
        assert repr(pick(columns, name)) == repr(pick(plain, name))
    for name in ("set/99", "set", "03", "set/03/2/data", None):
        with pytest.raises(MissingError) as wanted:
            pick(plain, name)
        with pytest.raises(MissingError) as found:
            pick(columns, name)
        assert str(found.value) == str(wanted.value)
    assert dict(columns.attributes) == dict(plain.attributes)


def test_the_times_of_a_dimension_count_before_those_of_files():
    days = np.datetime64("2021-01-01", "us") + np.arange(40).astype("m8[D]")
    coordinate = Coordinate(name="y", dims=("y",), values=days)
    pair = [replace(table.catalog, coordinates={"y": coordinate}) for table in PAIRS["nowhere",]]
    rows, files = PAIRS["nowhere",][0].unverified.refs, PAIRS["nowhere",][0].files
    short = [
        replace(one, arrays={n: a for n, a in one.arrays.items() if not a.level} if k == 0 else one.arrays)
        for k, one in enumerate(pair)
    ]
    kept = {name: refs for name, refs in rows.items() if name in short[0].arrays}
    plain, columns = memory_table(short[0], kept, files), memory_table(short[1], kept, files)
    for time in ("2021-01-20", "2021-02", "1999"):
        wanted = plain.select(time=time, level=0).to_pydict()
        assert columns.select(time=time, level=0).to_pydict() == wanted


@pytest.fixture
def stored(tmp_path, fetch):
    """A collection with attributes of groups, and a plain array, in every form that is not trusted."""

    def write(form):
        table = PAIRS["utm", "other zone"][1]
        refs = table.unverified.refs
        url = tmp_path / form
        write_table(str(url), table.catalog, refs.items(), table.files, fetch=fetch).close()
        return url

    return write


@pytest.mark.parametrize("form", ["i.parquet", "i", "i.duckdb"])
def test_rows_of_many_arrays_are_found_in_one_pass(form, stored, fetch):
    table = open_table(str(stored(form)), fetch=fetch, allow=["s3://bucket/"], trust=True)
    wanted = PAIRS["utm", "other zone"][0].select(level=0)
    assert table.select(level=0).to_pydict() == wanted.to_pydict()
    with pytest.raises(LimitError, match="over the limit of 500"):
        table.listed_all([(array, [(0, n) for n in array.grid]) for array in table.catalog.arrays.values()], most=500)


HOSTILE = {
    "a family that is not listed": ("family", lambda old: [7, *old[1:]], "family 7 where 2"),
    "a negative family": ("family", lambda old: [-2, *old[1:]], "family -2"),
    "a family that stands for none elsewhere": ("family", lambda old: [*old[:2], -1, *old[3:]], "family -1"),
    "a note that is not listed": ("note", lambda old: [9, *old[1:]], "note 9 where 1"),
    "a negative note": ("note", lambda old: [-1, *old[1:]], "note -1"),
    "no group": ("group", lambda old: [None, *old[1:]], "no group"),
    "a group twice": ("group", lambda old: [old[1], *old[1:]], "same group"),
    "an empty group": ("group", lambda old: ["", *old[1:]], "cannot be a name"),
    "a group above": ("group", lambda old: [*old[:4], "set/../04", *old[5:]], "'set/../04' cannot be a name"),
    "a group that ends in a slash": ("group", lambda old: ["set/", *old[1:]], "'set/' cannot be a name"),
    "a group of another system": ("group", lambda old: [old[0], "a\\b", *old[2:]], "cannot be a name"),
    "a group with a line break": ("group", lambda old: [old[0], "a\nb", *old[2:]], "cannot be a name"),
    "a group with a long name": ("group", lambda old: ["a" * 4097, *old[1:]], "too long a name"),
    "no corner": ("x", lambda old: [None, *old[1:]], "not a finite number"),
    "a corner that is no number": ("y", lambda old: [float("nan"), *old[1:]], "not a finite number"),
    "a corner nowhere": ("y", lambda old: [float("inf"), *old[1:]], "not a finite number"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("form", ["i.parquet", "i"])
def test_columns_that_make_no_sense_are_refused(case, form, stored, fetch):
    name, change, message = HOSTILE[case]
    index = tamper(stored(form), files=change_column(name, change))
    with pytest.raises(FormatError, match=message.replace("\\", ".")):
        open_table(str(index), fetch=fetch)


@pytest.mark.parametrize("form", ["i.parquet", "i"])
def test_a_collection_needs_its_columns(form, stored, fetch):
    with pytest.raises(FormatError, match="no column 'family'"):
        open_table(str(tamper(stored(form), files=lambda table: table.drop_columns(["family"]))), fetch=fetch)
    text = "must hold integers|must hold numbers"
    for name in ("note", "x"):
        odd = tamper(stored(form), files=lambda table, name=name: table.set_column(
            table.column_names.index(name), name, table["path"]))  # fmt: skip
        with pytest.raises(FormatError, match=text):
            open_table(str(odd), fetch=fetch)


@pytest.mark.parametrize("form", ["i.parquet", "i"])
def test_columns_that_a_collection_may_lack_are_null(form, stored, fetch):
    table = open_table(str(tamper(stored(form), files=lambda table: table.drop_columns(["note"]))), fetch=fetch)
    assert "set/03" not in table.catalog.attributes
    assert table.catalog.arrays["set/03/0/data"] == PAIRS["utm", "other zone"][1].catalog.arrays["set/03/0/data"]
    with pytest.raises(FormatError, match="not a finite number"):  # the arrays have a transform
        open_table(str(tamper(stored(form), files=lambda table: table.drop_columns(["x"]))), fetch=fetch)

    def unplaced(document):
        for family in document["families"]:
            for array in family.values():
                array.pop("transform", None)

    index = tamper(stored(form), files=lambda table: table.drop_columns(["x", "y"]), document=unplaced)
    assert open_table(str(index), fetch=fetch).array("set/03/0/data").georeference.transform is None


def test_an_array_of_a_group_has_a_name_of_its_own(stored, fetch):
    def clash(document):
        document["arrays"]["set/03/0/data"] = document["arrays"].pop("odd/data")

    with pytest.raises(FormatError, match="two arrays are named 'set/03/0/data'"):
        open_table(str(tamper(stored("i"), document=clash)), fetch=fetch)

    def nest(old):
        return [*old[:4], "set/03/0", *old[5:]]

    def longer(document):
        document["families"][1]["0/0/data"] = document["families"][1]["0/data"]

    index = tamper(stored("j"), files=change_column("group", nest), document=longer)
    with pytest.raises(FormatError, match="two arrays are named 'set/03/0/0/data'"):
        open_table(str(index), fetch=fetch)


def test_the_size_of_the_columns_is_bounded(stored, fetch):
    def long(old):
        return [f"{number}/" + "a" * 4000 for number in range(len(old))]

    index = tamper(stored("i"), files=change_column("group", long))
    with pytest.raises(LimitError):
        open_table(str(index), fetch=fetch, limits=replace(Limits(), memory_bytes=1 << 18))


PARTS = st.sampled_from(["a", "b", ".", "..", "", "é", "漢.", "...", "a\\", "a\0", "\x7f", "\x80"])


@settings(deadline=None)
@given(st.lists(st.lists(PARTS, max_size=3).map("/".join), max_size=6))
def test_many_names_are_judged_as_one_is(names):
    def sound(name):
        try:
            return bool(read_name(name))
        except FormatError:
            return False

    def judged():
        check_names(strings(["skipped", *names])[1:])

    if all(map(sound, names)) and len(set(names)) == len(names):
        judged()
    else:
        with pytest.raises(FormatError):
            judged()


def test_lookups_by_name_scan_first_and_then_use_an_index():
    groups = PAIRS["utm",][1].catalog.arrays
    fresh = replace(groups)
    for _ in range(3):
        for number in range(COUNT):
            assert fresh[f"set/{number:02}/1/data"] == groups[f"set/{number:02}/1/data"]
        for odd in ("set/99/0/data", "set/é/0/data", "/0/data", "set/03/9/data", "set/\ud800/0/data"):
            assert odd not in fresh
        for odd in ("", "set", "set/\ud800"):
            assert fresh.row(odd) is None
    assert fresh.unknown([*list(groups), None]) is None
    assert replace(groups).unknown([*list(groups), "set/03/0/mask"]) == "set/03/0/mask"
    assert replace(groups).unknown([*list(groups), "set/990/0/data"]) == "set/990/0/data"


def test_names_that_are_looked_up_together_are_found_as_each_alone_is():
    groups = PAIRS["utm",][1].catalog.arrays
    odd = ["set/99/0/data", "set/é/0/data", "/0/data", "set/03/9/data", "set/\ud800/0/data", "", "set", "data"]
    names = [*groups, *odd]
    together = replace(groups)
    together.look_up(names)
    assert [together.place(name) for name in names] == [replace(groups).place(name) for name in names]
    assert together.place("set/03/0/data") is not None
    assert "_rows" not in together.__dict__, "no index of all names is made"
    alone = replace(groups, families=(), names=groups.names[:0], family=groups.family[:0])
    alone.look_up(names)
    assert alone.place("set/03/0/data") is None
