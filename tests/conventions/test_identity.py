"""Conventions are known by uuid, then schema_url, then spec_url, and never by name."""

import pytest

from periplus.conventions.identity import CONVENTIONS, declared, metadata, names, repository

RAW = "https://raw.githubusercontent.com"
SPATIAL = "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4"


def read(*entries):
    found, notes = declared({"zarr_conventions": list(entries)}, "/a")
    return [one.name for one in found], [(note.code, note.severity) for note in notes]


def test_what_we_write_is_what_the_schemas_of_v0_1_demand():
    assert metadata("proj") == {
        "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "name": "proj",
        "schema_url": f"{RAW}/zarr-conventions/proj/refs/tags/v0.1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/proj/blob/v0.1/README.md",
        "description": "Coordinate reference system information for geospatial data",
    }
    assert metadata("spatial")["description"] == "Spatial coordinate information"
    assert metadata("multiscales")["description"] == "Multiscale layout of zarr datasets"


@pytest.mark.parametrize("name", sorted(CONVENTIONS))
def test_what_we_write_identifies_itself_without_a_finding(name):
    assert read(metadata(name)) == ([name], [])


def test_the_uuid_decides_over_urls_and_names():
    entry = {"uuid": SPATIAL, "schema_url": f"{RAW}/zarr-conventions/proj/refs/tags/v0.1/schema.json", "name": "proj"}
    assert read(entry) == (["spatial"], [("identity.conflict", "warning"), ("identity.name", "info")])


def test_an_unknown_uuid_is_not_rescued_by_its_url():
    entry = {"uuid": "0" * 8 + "-0000-0000-0000-" + "0" * 12, "schema_url": metadata("spatial")["schema_url"]}
    assert read(entry) == ([None], [("identity.unknown", "warning")])


def test_an_uuid_in_capitals_is_known_and_reported():
    assert read({"uuid": SPATIAL.upper()}) == (["spatial"], [("identity.uuid-form", "warning")])


@pytest.mark.parametrize(
    ("url", "name", "tag"),
    [
        (f"{RAW}/zarr-conventions/multiscales/refs/tags/v1/schema.json", "multiscales", "v1"),
        (f"{RAW}/zarr-experimental/multiscales/refs/tags/v0.1.0/schema.json", "multiscales", "v0.1.0"),
        (f"{RAW}/zarr-experimental/geo-proj/refs/tags/v0/schema.json", "proj", "v0"),
        (f"{RAW}/zarr-conventions/geo-proj/main/schema.json", "proj", "main"),
        ("https://github.com/zarr-conventions/geo-proj/blob/v1/README.md", "proj", "v1"),
        (f"{RAW}/zarr-conventions/proj/5ca5b2f/schema.json", "proj", "5ca5b2f"),
        (f"{RAW}/R-CF/zarr_convention_cs/main/schema.json", "cs", "main"),
        (f"{RAW}/R-CF/zarr_conventions_cs/main/schema/cs.schema.json", "cs", "main"),
        (f"{RAW}/zarr-conventions/coords/refs/tags/v1/schema.json", "dimensions", "v1"),
        ("https://github.com/ucam-eo/zarr-convention-tessera", "tessera", None),
        (f"{RAW}/someone/else/main/schema.json", None, "main"),
        ("https://example.org/zarr-conventions/proj/schema.json", None, None),
    ],
)
def test_urls_are_known_by_the_repository_they_point_into(url, name, tag):
    convention, said = repository(url)
    assert (convention and convention.name, said) == (name, tag)


def test_a_schema_url_or_a_spec_url_alone_identifies():
    schema, spec = metadata("spatial")["schema_url"], metadata("spatial")["spec_url"]
    assert read({"schema_url": schema}) == (["spatial"], [("identity.no-uuid", "info")])
    assert read({"spec_url": spec}) == (["spatial"], [("identity.no-uuid", "info")])
    unknown = {"schema_url": "https://example.org/x.json", "spec_url": spec}
    assert read(unknown)[0] == ["spatial"]
    assert ("identity.unknown-url", "warning") in read(unknown)[1]


def test_a_name_alone_identifies_nothing_but_the_hint_names_the_convention():
    found, notes = declared({"zarr_conventions": [{"name": "spatial:"}]}, "/a")
    assert names(found) == frozenset()
    assert (notes[0].code, notes[0].path) == ("identity.name-only", "/a")
    assert SPATIAL in notes[0].hint


def test_unknown_urls_warn():
    assert read({"schema_url": "https://example.org/s.json"}) == ([None], [("identity.unknown-url", "warning")])
    assert read({"uuid": SPATIAL, "schema_url": "https://example.org/s.json"})[1] == [
        ("identity.unknown-url", "warning")
    ]


def test_older_urls_and_names_with_a_colon_are_mild():
    entry = {
        "uuid": SPATIAL,
        "schema_url": f"{RAW}/zarr-conventions/spatial/refs/tags/v1/schema.json",
        "name": "spatial:",
    }
    assert read(entry) == (["spatial"], [("identity.old-url", "info"), ("identity.name", "info")])


def test_the_object_form_of_2025_is_read_as_a_list():
    old = {SPATIAL: {"version": "0.1", "schema": metadata("spatial")["schema_url"], "name": "spatial"}}
    found, notes = declared({"zarr_conventions": old}, "/")
    assert names(found) == {"spatial"}
    assert [note.code for note in notes] == ["identity.object-form"]


@pytest.mark.parametrize("value", ["spatial", 3, True])
def test_other_forms_declare_nothing(value):
    found, notes = declared({"zarr_conventions": value}, "/")
    assert (found, [note.code for note in notes]) == ((), ["identity.malformed"])


def test_fields_the_framework_forbids_are_reported():
    assert read({"uuid": CONVENTIONS["CF"].uuid, "name": "CF", "version": "1.11"}) == (
        ["CF"],
        [("identity.extra-field", "info")],
    )


def test_entries_that_are_no_objects_and_repetitions_are_reported():
    assert read("x", {"uuid": SPATIAL}, {"uuid": SPATIAL}) == (
        ["spatial", "spatial"],
        [("identity.malformed", "error"), ("identity.repeated", "warning")],
    )
