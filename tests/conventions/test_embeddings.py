"""tessera and geoemb: attributes of groups of embeddings, and how their integers become numbers."""

import pytest

from periplus.conventions.meaning import Quantization

ZONE = {"dataset_version": "v1", "year": 2024, "utm_zone": 30, "n_bands": 128, "n_tiles": 240, "model_version": "1.0"}
GEOEMB = {
    "type": "pixel",
    "dimensions": 64,
    "model": "https://example.org/model",
    "source_data": ["https://example.org/data"],
    "data_type": "int8",
}


def zone(store, name="tessera", dims=("northing", "easting", "band"), scales="/utm30/scales", **attributes):
    store.group("/utm30", name, **{f"{name}__{key}": value for key, value in attributes.items()})
    store.array("/utm30/embeddings", dims, (50, 60, 128), dtype="int8")
    if scales:
        store.array(scales, dims[:2], (50, 60))
    return store


def test_tessera_embeddings_are_multiplied_by_their_scales(store, codes):
    zone(store, **ZONE)
    meaning = store.read("/utm30/embeddings")
    assert meaning.quantization.scale.reference.path == "/utm30/scales"
    assert meaning.quantization.scale.dims == ("northing", "easting")
    assert store.read("/utm30/scales").quantization is None
    group = store.read("/utm30")
    assert group.embedding == {"convention": "tessera", **ZONE}
    assert codes(group) == []


def test_missing_scales_and_required_properties_are_reported(store, codes):
    zone(store, scales=None, **{key: value for key, value in ZONE.items() if key != "n_tiles"})
    assert store.read("/utm30/embeddings").quantization is None
    assert "ref.missing" in codes(store.read("/utm30/embeddings"))
    assert codes(store.read("/utm30")) == ["tessera.missing"]


@pytest.mark.parametrize(("key", "value"), [("year", 1969), ("utm_zone", 61), ("n_bands", 0), ("n_tiles", "7")])
def test_values_out_of_range_are_reported(store, codes, key, value):
    zone(store, **{**ZONE, key: value})
    assert codes(store.read("/utm30")) == ["tessera.value"]


def test_a_root_needs_less_than_a_zone(store, codes):
    store.group("/", "tessera", tessera__dataset_version="v1", tessera__year=2024)
    assert codes(store.read("/")) == []


def test_geoemb_with_one_scale_for_all(store, codes):
    scale = {"type": "scalar", "scale": 0.0078125, "offset": 1.0}
    store.group(
        "/",
        "geoemb",
        **{f"geoemb__{key}": value for key, value in GEOEMB.items()},
        geoemb__quantization={
            "method": "linear",
            "original_dtype": "float32",
            "quantized_dtype": "int8",
            "scale": scale,
        },
    )
    store.array("/e", ("y", "x", "band"), (5, 6, 64), dtype="int8")
    store.array("/rgb", ("y", "x", "c"), (5, 6, 4), dtype="uint8")
    assert store.read("/e").quantization == Quantization(scale=0.0078125, offset=1.0, method="linear")
    assert store.read("/rgb").quantization is None
    assert codes(store.read("/")) == []


def test_geoemb_with_scales_in_an_array_by_whatever_names(store):
    scale = {"type": "array", "array_name": "scales", "nodata": "+inf"}
    store.group(
        "/",
        "geoemb",
        **{f"geoemb__{key}": value for key, value in GEOEMB.items()},
        geoemb__quantization={"method": "per_pixel_scale", "original_dtype": "float32", "scale": scale},
    )
    store.array("/e", ("y", "x", "band"), (5, 6, 64), dtype="|i1")
    store.array("/scales", ("northing", "easting"), (5, 6))
    found = store.read("/e").quantization
    assert (found.scale.reference.path, found.scale.dims) == ("/scales", ("y", "x"))
    store.array("/scales", ("northing", "easting"), (7, 7))
    assert store.read("/e").quantization is None


@pytest.mark.parametrize(
    "change",
    [
        {"type": "cloud"},
        {"dimensions": 0},
        {"source_data": []},
        {"gsd": -1},
        {"spatial_layout": "hexagons"},
        {"quantization": {"method": "x"}},
    ],
)
def test_wrong_properties_of_geoemb_are_reported(store, codes, change):
    store.group("/", "geoemb", **{f"geoemb__{key}": value for key, value in {**GEOEMB, **change}.items()})
    assert codes(store.read("/")) == ["geoemb.value"]


def test_chips_need_their_layout(store, codes):
    store.group("/", "geoemb", **{f"geoemb__{key}": value for key, value in {**GEOEMB, "type": "chip"}.items()})
    assert codes(store.read("/")) == ["geoemb.missing"]
