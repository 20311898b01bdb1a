"""multiscales: the four layouts, GDAL's and older ones; shapes distinguish relative and cumulative scales."""

import numpy as np
import pytest

UTM = [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0]


def grown(factor, base=UTM):
    a, b, c, d, e, f = base
    return [a * factor, b * factor, c, d * factor, e * factor, f]


def layout(names, *, absolute=True, scale=2.0, shapes=(16, 8, 4)):
    items = []
    for n, name in enumerate(names):
        item = {"asset": name}
        if n:
            item |= {"derived_from": names[n - 1], "transform": {"scale": [scale, scale], "translation": [0.0, 0.0]}}
        if absolute:
            item |= {"spatial:transform": grown(2**n), "spatial:shape": [shapes[n]] * 2}
        items.append(item)
    return {"layout": items, "resampling_method": "average"}


def pyramid(store, layout_, *, conventions="multiscales spatial proj", **attributes):
    store.group(
        "/",
        conventions,
        multiscales=layout_,
        **{"spatial__dimensions": ["y", "x"], "proj__code": "EPSG:32633", **attributes},
    )


def summary(meaning):
    return [(level.asset, level.shape, level.grid and level.grid.transform[0]) for level in meaning.pyramid.levels]


LAYOUTS = {
    "groups": (["0", "1", "2"], "/{}/b", "b"),
    "arrays": (["0", "1", "2"], "/{}", "data"),
    "nested arrays": (["0/data", "1/data", "2/data"], "/{}", "data"),
    "nested groups": (["resolutions/full", "resolutions/half", "resolutions/quarter"], "/{}/b", "b"),
}


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("absolute", [True, False])
def test_the_four_layouts_give_the_same_levels(store, codes, kind, absolute):
    names, path, variable = LAYOUTS[kind]
    pyramid(store, layout(names, absolute=absolute), **({} if absolute else {"spatial__transform": UTM}))
    for n, name in enumerate(names):
        store.array(path.format(name), ("y", "x"), (16 >> n, 16 >> n))
    meaning = store.read("/")
    assert codes(meaning) == []
    assert [level.factors for level in meaning.pyramid.levels] == [(1, 1), (2, 2), (4, 4)]
    assert [level.grid.transform[0] for level in meaning.pyramid.levels] == [10, 20, 40]
    assert [level.arrays for level in meaning.pyramid.levels] == [{variable: path.format(name)} for name in names]
    assert meaning.pyramid.resampling == "average"
    for n, name in enumerate(names):
        array = store.read(path.format(name))
        x = next(c for c in array.coords if c.name == "x").values.values()
        np.testing.assert_array_equal(x, 500000 + 10 * 2**n * (np.arange(16 >> n) + 0.5))
        assert (array.level.order, array.pyramid, array.crs.code) == (n, "/", "EPSG:32633")
        assert codes(array) == []


def test_the_overview_layout_of_gdal_has_its_base_next_to_its_levels(store, codes):
    items = [
        {"asset": "b"},
        {"asset": "ovr_2x", "derived_from": "b", "transform": {"scale": [101 / 51, 2.0], "translation": [0, 0]}},
        {"asset": "ovr_4x", "derived_from": "ovr_2x", "transform": {"scale": [51 / 26, 2.0], "translation": [0, 0]}},
    ]
    pyramid(store, {"layout": items}, spatial__transform=UTM)
    store.array("/b", ("y", "x"), (101, 40))
    store.array("/ovr_2x/b", ("y", "x"), (51, 20))
    store.array("/ovr_4x/b", ("y", "x"), (26, 10))
    meaning = store.read("/")
    assert [level.arrays for level in meaning.pyramid.levels] == [{"b": "/b"}, {"b": "/ovr_2x/b"}, {"b": "/ovr_4x/b"}]
    assert [level.factors for level in meaning.pyramid.levels] == [(1, 1), (2, 2), (4, 4)]
    assert store.read("/ovr_4x/b").grid.transform == tuple(grown(4))
    assert codes(meaning) == codes(store.read("/b")) == []


def test_the_base_may_be_the_group_itself(store, codes):
    items = [{"asset": "."}, {"asset": "r20", "derived_from": ".", "transform": {"scale": [2.0, 2.0]}}]
    pyramid(store, {"layout": items}, spatial__transform=UTM)
    store.array("/b", ("y", "x"), (16, 16))
    store.array("/r20/b", ("y", "x"), (8, 8))
    meaning = store.read("/")
    assert [(level.path, level.arrays) for level in meaning.pyramid.levels] == [
        ("/", {"b": "/b"}),
        ("/r20", {"b": "/r20/b"}),
    ]
    assert store.read("/b").grid.transform == tuple(UTM)
    assert store.read("/r20/b").grid.transform == tuple(grown(2))
    assert codes(meaning) == codes(store.read("/r20/b")) == []


def test_cumulative_scales_are_recognised_by_shapes(store, codes):
    items = [{"asset": "0"}] + [
        {"asset": str(n), "derived_from": str(n - 1), "transform": {"scale": [2.0**n, 2.0**n]}} for n in (1, 2, 3)
    ]
    pyramid(store, {"layout": items}, spatial__transform=UTM)
    for n in range(4):
        store.array(f"/{n}/b", ("y", "x"), (160 >> n, 160 >> n))
    meaning = store.read("/")
    assert [level.factors[0] for level in meaning.pyramid.levels] == [1, 2, 4, 8]
    assert codes(meaning, all=True).count("multiscales.scale-cumulative") == 2
    assert codes(meaning) == []


def test_without_shapes_scales_count_from_the_level_before_with_a_finding(store, codes):
    items = [{"asset": "0"}] + [
        {"asset": str(n), "derived_from": str(n - 1), "transform": {"scale": [2.0**n, 2.0**n]}} for n in (1, 2)
    ]
    pyramid(store, {"layout": items})
    meaning = store.read("/")
    assert [level.factors[0] for level in meaning.pyramid.levels] == [1, 2, 8]
    assert "multiscales.scale-ambiguous" in codes(meaning)


def test_scales_that_fit_no_sizes_give_way_to_the_sizes(store, codes):
    pyramid(store, layout(["0", "1"], absolute=False, scale=3.0), spatial__transform=UTM)
    store.array("/0/b", ("y", "x"), (160, 160))
    store.array("/1/b", ("y", "x"), (80, 80))
    meaning = store.read("/")
    assert meaning.pyramid.levels[1].factors == (2, 2)
    assert codes(meaning) == ["multiscales.scale-mismatch"]


@pytest.mark.parametrize("odd", [(51, 50), (50, 50), (51, 51)])
def test_uneven_sizes_rounded_up_or_down_keep_the_whole_factor(store, odd):
    pyramid(store, layout(["0", "1"], absolute=False), spatial__transform=UTM)
    store.array("/0/b", ("y", "x"), (101, 101))
    store.array("/1/b", ("y", "x"), odd)
    assert store.read("/").pyramid.levels[1].grid.transform == tuple(grown(2))


def test_the_scale_may_have_an_entry_for_every_dimension(store, codes):
    items = layout(["0", "1"], absolute=False)
    items["layout"][1]["transform"] = {"scale": [1.0, 2.0, 4.0], "translation": [0.0, 0.0, 0.0]}
    pyramid(store, items, spatial__transform=UTM)
    store.array("/0/b", ("band", "y", "x"), (3, 160, 160))
    store.array("/1/b", ("band", "y", "x"), (3, 80, 40))
    assert store.read("/").pyramid.levels[1].factors == (2, 4)
    items["layout"][1]["transform"] = {"scale": [1.0, 1.0, 1.0, 2.0]}
    pyramid(store, items, spatial__transform=UTM)
    assert codes(store.read("/")) == ["multiscales.scale-rank"]


def test_half_pixels_of_centres_move_no_corner_but_do_move_nodes(store, codes):
    items = layout(["0", "1"], absolute=False)
    items["layout"][1]["transform"]["translation"] = [0.5, 0.5]
    pyramid(store, items, spatial__transform=UTM)
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/b", ("y", "x"), (8, 8))
    assert store.read("/").pyramid.levels[1].grid.transform == tuple(grown(2))
    assert codes(store.read("/"), all=True)[-1:] != ["multiscales.translation"]
    pyramid(store, items, spatial__transform=UTM, spatial__registration="node")
    node = store.read("/").pyramid.levels[1].grid
    assert node.transform == (20, 0, 500005, 0, -20, 4999995)
    items["layout"][1]["transform"]["translation"] = [3, 3]
    pyramid(store, items, spatial__transform=UTM)
    assert codes(store.read("/")) == ["multiscales.translation"]


def test_layout_items_decide_over_stale_transforms_of_arrays_and_groups(store, codes):
    pyramid(store, layout(["0", "1"]))
    store.array("/0/b", ("y", "x"), (16, 16), "spatial", spatial__transform=UTM, spatial__dimensions=["y", "x"])
    store.array("/1/b", ("y", "x"), (8, 8), "spatial", spatial__transform=UTM, spatial__dimensions=["y", "x"])
    array = store.read("/1/b")
    assert array.grid.transform == tuple(grown(2))
    assert codes(array) == ["multiscales.transform-conflict"]
    assert codes(store.read("/")) == ["multiscales.transform-conflict"]
    assert codes(store.read("/0/b")) == []


def test_levels_declare_their_own_transform_where_the_layout_has_none(store, codes):
    pyramid(store, layout(["0", "1"], absolute=False))
    store.group("/0", "spatial", spatial__transform=UTM)
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/b", ("y", "x"), (8, 8), "spatial", spatial__transform=grown(2), spatial__dimensions=["y", "x"])
    assert [level.grid.transform[0] for level in store.read("/").pyramid.levels] == [10, 20]
    assert store.read("/0/b").grid.transform == tuple(UTM)
    assert codes(store.read("/")) == []


def test_levels_are_ordered_by_resolution_and_may_be_finer_than_the_base(store):
    items = [
        {"asset": "r20", "spatial:transform": grown(2)},
        {"asset": "r40", "derived_from": "r20", "transform": {"scale": [2, 2]}, "spatial:transform": grown(4)},
        {"asset": "r10", "derived_from": "r20", "transform": {"scale": [0.5, 0.5]}, "spatial:transform": UTM},
    ]
    pyramid(store, {"layout": items})
    for name, size in (("r20", 8), ("r40", 4), ("r10", 16)):
        store.array(f"/{name}/b", ("y", "x"), (size, size))
    levels = store.read("/").pyramid.levels
    assert [(level.asset, level.order, level.factors) for level in levels] == [
        ("r10", 0, (1, 1)),
        ("r20", 1, (2, 2)),
        ("r40", 2, (4, 4)),
    ]


def test_an_invalid_pyramid_is_reported_piece_by_piece_and_still_read(store, codes):
    items = [
        {"asset": "0", "spatial:shape": [5, 4], "spatial:transform": UTM},
        {"asset": "1", "derived_from": "0", "transform": {"scale": [2.0, 2.0]}},
        {"asset": "2", "derived_from": "2"},
    ]
    pyramid(store, {"layout": items})
    store.array("/0/b", ("y", "x"), (4, 4))
    store.array("/2/b", ("y", "x"), (2, 2))
    meaning = store.read("/")
    assert sorted(codes(meaning)) == [
        "multiscales.asset-missing",
        "multiscales.cycle",
        "multiscales.shape-mismatch",
        "multiscales.transform-missing",
    ]
    assert (meaning.pyramid.levels[0].asset, meaning.pyramid.levels[0].kind) == ("0", "group")
    assert store.read("/2/b").grid.transform == tuple(grown(2))


def test_long_circles_are_found_too(store, codes):
    items = [{"asset": str(n), "derived_from": str((n + 1) % 3), "transform": {"scale": [2, 2]}} for n in range(3)]
    pyramid(store, {"layout": items})
    for n in range(3):
        store.array(f"/{n}/b", ("y", "x"), (16 >> n, 16 >> n))
    meaning = store.read("/")
    assert "multiscales.cycle" in codes(meaning)
    assert len(meaning.pyramid.levels) == 3


@pytest.mark.parametrize("asset", ["/0", "../0", "a/../..", "", 5, None])
def test_assets_outside_the_group_are_refused(store, codes, asset):
    pyramid(store, {"layout": [{"asset": asset}]})
    meaning = store.read("/")
    assert meaning.pyramid is None
    assert set(codes(meaning)) <= {"multiscales.asset-path", "multiscales.malformed"}
    assert codes(meaning)


@pytest.mark.parametrize("value", [None, 3, "x", {}, {"layout": []}, {"layout": "0"}, [], [{}], {"layout": [3]}])
def test_malformed_layouts_give_no_pyramid_and_no_exception(store, codes, value):
    pyramid(store, value)
    meaning = store.read("/")
    assert meaning.pyramid is None
    assert "multiscales.malformed" in codes(meaning)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"layout": [{"group": "0"}, {"group": "1", "from_group": "0", "factors": [2, 2]}]}, "multiscales.old-keys"),
        ({"layout": [{"asset": "0"}, {"asset": "1", "derived_from": "0", "scale": [2, 2]}]}, "multiscales.old-keys"),
        (
            {"layout": {"0": {}, "1": {"derived_from": "0", "transform": {"scale": [2, 2]}}}},
            "multiscales.layout-object",
        ),
        ({"layout": ["0", "1"]}, "multiscales.item-text"),
        ([{"datasets": [{"path": "0"}, {"path": "1"}]}], "multiscales.list-form"),
        ({"tile_matrix_set": "WebMercatorQuad"}, "multiscales.tile-matrix-set"),
        (
            {
                "tile_matrix_set": {
                    "tileMatrices": [
                        {"id": "0", "cellSize": 10.0, "pointOfOrigin": [500000.0, 5000000.0]},
                        {"id": "1", "cellSize": 20.0, "pointOfOrigin": [500000.0, 5000000.0]},
                    ]
                }
            },
            "multiscales.tile-matrix-set",
        ),
    ],
)
def test_older_drafts_are_upgraded(store, codes, value, code):
    pyramid(store, value, spatial__transform=UTM)
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/b", ("y", "x"), (8, 8))
    meaning = store.read("/")
    assert summary(meaning) == [("0", (16, 16), 10), ("1", (8, 8), 20)]
    assert code in codes(meaning, all=True)


def test_absolute_keys_of_the_proj_drafts_are_read_in_layouts(store, codes):
    items = layout(["0", "1"])
    for item in items["layout"]:
        item["proj:transform"], item["proj:shape"] = item.pop("spatial:transform"), item.pop("spatial:shape")
    pyramid(store, items)
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/b", ("y", "x"), (8, 8))
    assert summary(store.read("/")) == [("0", (16, 16), 10), ("1", (8, 8), 20)]
    assert "proj.old-keys" in codes(store.read("/"), all=True)


def test_variables_may_be_missing_at_levels_and_others_have_another_grid(store, codes):
    pyramid(store, layout(["0", "1"]))
    store.array("/0/a", ("y", "x"), (16, 16))
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/a", ("y", "x"), (8, 8))
    store.array("/1/angles", ("y", "x"), (2, 2))
    store.array("/1/time", ("time",), (3,))
    levels = store.read("/").pyramid.levels
    assert [sorted(level.arrays) for level in levels] == [["a", "b"], ["a", "angles"]]
    assert store.read("/1/angles").grid is None
    assert codes(store.read("/1/time")) == codes(store.read("/")) == []


def test_levels_of_another_crs_are_reported(store, codes):
    pyramid(store, layout(["0", "1"]))
    store.array("/0/b", ("y", "x"), (16, 16))
    store.array("/1/b", ("y", "x"), (8, 8), "proj", proj__code="EPSG:32632")
    assert codes(store.read("/")) == ["multiscales.crs"]
    assert store.read("/1/b").crs.code == "EPSG:32632"


def test_an_undeclared_pyramid_is_ignored(store, codes):
    pyramid(store, layout(["0", "1"]), conventions="spatial proj")
    store.array("/0/b", ("y", "x"), (16, 16))
    assert (store.read("/").pyramid, codes(store.read("/"))) == (None, ["multiscales.undeclared"])
    assert store.read("/", strict=False).pyramid is not None


def test_pyramids_within_pyramids_belong_to_the_nearest(store):
    pyramid(store, layout(["0"]))
    store.array("/0/b", ("y", "x"), (16, 16))
    store.group(
        "/images/1", "multiscales spatial", multiscales=layout(["0"], shapes=(4,)), spatial__dimensions=["y", "x"]
    )
    store.array("/images/1/0/b", ("y", "x"), (4, 4))
    assert store.read("/images/1/0/b").pyramid == "/images/1"
    assert store.read("/0/b").pyramid == "/"


def test_too_many_levels_are_cut(store, codes):
    pyramid(store, {"layout": [{"asset": str(n)} for n in range(1000)]})
    assert len(store.read("/").pyramid.levels) == 256
    assert "multiscales.many" in codes(store.read("/"))


def test_arrays_without_names_of_dimensions_are_levels_by_their_last_two(store, codes):
    pyramid(store, layout(["0", "1"], absolute=False), conventions="multiscales")
    store.array("/0", (), (3, 16, 16))
    store.array("/1", (), (3, 8, 8))
    levels = store.read("/").pyramid.levels
    assert [(level.shape, level.factors) for level in levels] == [((16, 16), (1, 1)), ((8, 8), (2, 2))]
    assert [level.arrays for level in levels] == [{"data": "/0"}, {"data": "/1"}]


def test_attributes_of_levels_are_declared_by_the_group_of_the_pyramid(store, codes):
    pyramid(store, layout(["0", "1"], absolute=False))
    for n in range(2):
        store.group(f"/{n}", spatial__transform=grown(2**n), proj__code="EPSG:32633")
        store.array(f"/{n}/b", ("y", "x"), (16 >> n, 16 >> n))
    assert [level.grid.transform[0] for level in store.read("/").pyramid.levels] == [10, 20]
    assert store.read("/1/b").grid.transform == tuple(grown(2))
    assert codes(store.read("/")) == codes(store.read("/1/b")) == []
    assert {"spatial.by-group", "proj.by-group"} <= set(codes(store.read("/1/b"), all=True))
