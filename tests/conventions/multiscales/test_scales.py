"""multiscales: scales against transforms, layouts with single faults, chains that begin apart."""

import pytest

UTM = [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0]


def grown(factor):
    return [UTM[0] * factor, 0.0, UTM[2], 0.0, UTM[4] * factor, UTM[5]]


def levels(store, *items, sizes=(16, 8, 4), **attributes):
    store.group(
        "/", "multiscales spatial", multiscales={"layout": list(items)}, spatial__dimensions=["y", "x"], **attributes
    )
    for n, item in enumerate(items):
        if isinstance(item.get("asset"), str):
            store.array(f"/{item['asset']}/b", ("y", "x"), (sizes[n], sizes[n]))
    return store.read("/")


def level(name, source=None, **more):
    derived = {} if source is None else {"derived_from": source}
    return {"asset": name, **derived, **more}


def scale(*values, **more):
    return {"transform": {"scale": list(values), **more}}


def test_a_scale_that_counts_from_the_base_is_recognised_by_the_transforms(store, codes):
    meaning = levels(
        store,
        level("0", **{"spatial:transform": UTM}),
        level("1", "0", **scale(2, 2), **{"spatial:transform": grown(2)}),
        level("2", "1", **scale(4, 4), **{"spatial:transform": grown(4)}),
    )
    assert [one.factors[0] for one in meaning.pyramid.levels] == [1, 2, 4]
    assert codes(meaning, all=True) == ["multiscales.scale-cumulative"]


def test_a_scale_that_no_transform_gives_is_reported(store, codes):
    meaning = levels(
        store,
        level("0", **{"spatial:transform": UTM}),
        level("1", "0", **scale(3, 3), **{"spatial:transform": grown(2)}),
    )
    assert meaning.pyramid.levels[1].factors == (2, 2)
    assert codes(meaning) == ["multiscales.scale-mismatch"]


def test_a_scale_that_is_the_ratio_of_sizes_is_right_as_gdal_writes_it(store, codes):
    meaning = levels(
        store,
        level("0", **{"spatial:transform": UTM}),
        level("1", "0", **scale(101 / 51, 101 / 51), **{"spatial:transform": grown(2)}),
        sizes=(101, 51),
    )
    assert codes(meaning) == []


def test_sources_that_are_no_levels_are_reported(store, codes):
    meaning = levels(store, level("0"), level("1", "nine", **scale(2, 2)), spatial__transform=UTM)
    assert codes(meaning) == ["multiscales.derived-from"]
    assert meaning.pyramid.levels[1].factors == (2, 2)


def test_chains_that_begin_apart_are_compared_by_their_pixels(store, codes):
    meaning = levels(
        store,
        level("0", **{"spatial:transform": UTM}),
        level("other", **{"spatial:transform": grown(6)}),
        level("half", "other", **scale(2, 2)),
        sizes=(60, 10, 5),
    )
    assert [(one.asset, one.factors) for one in meaning.pyramid.levels] == [
        ("0", (1, 1)),
        ("other", (6, 6)),
        ("half", (12, 12)),
    ]
    assert codes(meaning) == []


def test_levels_nobody_can_measure_come_last_without_factors(store):
    store.group("/", "multiscales", multiscales={"layout": [level("a"), level("b")]})
    assert [one.factors for one in store.read("/").pyramid.levels] == [None, None]


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (level("0"), "multiscales.repeated"),
        (level("1", "0", transform=3), "multiscales.malformed"),
        (level("1", "0", **scale("2", "2")), "multiscales.malformed"),
        (level("1", "0", **scale(0, 0)), "multiscales.malformed"),
        (level("1", "0", **scale(2, 2, translation="0")), "multiscales.malformed"),
        (level("1", "0", **scale(2, 2), **{"spatial:shape": [8]}), "spatial.shape"),
        (level("1", "0", **scale(2, 2), **{"spatial:transform": [1, 2]}), "spatial.transform"),
        (level("1", 5, **scale(2, 2)), "multiscales.malformed"),
    ],
)
def test_a_fault_of_one_item_leaves_the_pyramid(store, codes, item, code):
    meaning = levels(store, level("0"), item, spatial__transform=UTM)
    assert code in codes(meaning)
    assert meaning.pyramid.levels[0].grid.transform == tuple(UTM)


def test_assets_not_in_their_plainest_form_are_found(store, codes):
    store.group("/", "multiscales", multiscales={"layout": [level("./0/"), level("a//b", "0", **scale(2, 2))]})
    store.array("/0/x", ("y", "x"), (8, 8))
    store.array("/a/b/x", ("y", "x"), (4, 4))
    meaning = store.read("/")
    assert [one.path for one in meaning.pyramid.levels] == ["/0", "/a/b"]
    assert codes(meaning, all=True) == ["multiscales.asset-form", "multiscales.asset-form"]


def test_a_level_has_its_own_resampling_method(store):
    meaning = levels(store, level("0"), level("1", "0", **scale(2, 2), resampling_method="mode"))
    assert [one.resampling for one in meaning.pyramid.levels] == [None, "mode"]


def test_boxes_of_node_grids_by_their_edges_are_mild(store, codes):
    store.array(
        "/a",
        ("y", "x"),
        (4, 5),
        "spatial",
        spatial__dimensions=["y", "x"],
        spatial__transform=UTM,
        spatial__registration="node",
        spatial__bbox=[499995.0, 4999965.0, 500045.0, 5000005.0],
    )
    assert codes(store.read("/a"), all=True) == ["spatial.bbox-edges"]


NODES = [10.0, 0.0, 0.0, 0.0, -10.0, 80.0]


def steps(meaning):
    return [
        None if one.grid is None else (one.grid.transform[4], one.grid.transform[0]) for one in meaning.pyramid.levels
    ]


@pytest.mark.parametrize(
    "scales",
    [
        (None, None),  # by sizes alone: 8, 4 and 2 cells lie between 9, 5 and 3 samples
        (2, 2),
        (2, 4),  # counted from the base
        (9 / 5, 5 / 3),  # the ratio of sizes, as GDAL writes it
    ],
)
def test_nodes_are_apart_by_the_cells_between_them(store, codes, scales):
    items = [level("0")]
    for n, factor in enumerate(scales, 1):
        items.append(level(str(n)) if factor is None else level(str(n), str(n - 1), **scale(factor, factor)))
    meaning = levels(store, *items, sizes=(9, 5, 3), spatial__transform=NODES, spatial__registration="node")
    assert steps(meaning) == [(-10, 10), (-20, 20), (-40, 40)]
    for n in range(3):
        x, y = ({c.name: c.values.values() for c in store.read(f"/{n}/b").coords}[dim] for dim in "xy")
        assert (x[0], x[-1], y[0], y[-1]) == (0, 80, 80, 0)
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((9, 3), [10, 40]),
        ((8, 4), [10, 20]),  # samples 0, 2, 4 and 6
        ((10, 5), [10, 20]),
        ((101, 51, 26), [10, 20, 40]),
        ((7, 3), [10, 30]),
        ((8, 4, 2), [10, 20, 40]),
        ((64, 32, 16, 8, 4, 2), [10, 20, 40, 80, 160, 320]),
        ((64, 2), [10, 320]),  # as by halving
        ((64, 16, 4), [10, 40, 160]),
        ((6, 2), [10, 40]),
        ((28, 10), [10, 30]),
    ],
)
def test_nodes_of_any_size_keep_their_first_sample(store, sizes, expected):
    items = [level(str(n)) for n in range(len(sizes))]
    meaning = levels(store, *items, sizes=sizes, spatial__transform=NODES, spatial__registration="node")
    assert [x for _, x in steps(meaning)] == expected
    assert {one.grid.transform[2] for one in meaning.pyramid.levels} == {0}


@pytest.mark.parametrize("sizes", [(9, 4), (16, 3)])
def test_sizes_that_leave_the_step_of_nodes_open_are_found(store, codes, sizes):
    place = {"spatial__transform": NODES, "spatial__registration": "node"}
    meaning = levels(store, level("0"), level("1"), sizes=sizes, **place)
    assert [x for _, x in steps(meaning)] == [10, 10 * ((sizes[0] - 1) / (sizes[1] - 1))]
    assert codes(meaning) == ["multiscales.scale-open"]
    whole = -(-sizes[0] // sizes[1])
    meaning = levels(store, level("0"), level("1", "0", **scale(whole, whole)), sizes=sizes, **place)
    assert [x for _, x in steps(meaning)] == [10, 10 * whole]
    assert codes(meaning) == []


def test_an_axis_that_leaves_the_step_open_has_that_of_the_other(store, codes):
    place = {"spatial__transform": NODES, "spatial__registration": "node"}
    store.array("/0/b", ("y", "x"), (60, 16))
    store.array("/1/b", ("y", "x"), (10, 3))
    store.group("/", "multiscales spatial", multiscales={"layout": [level("0"), level("1")]}, **place)
    assert steps(store.read("/")) == [(-10, 10), (-60, 60)]
    assert codes(store.read("/")) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((9, 5, 3), [10, 20, 40]), ((17, 9, 5, 3, 2), [10, 20, 40, 80, 160]), ((30, 20), [10, 15])],
)
def test_pixels_without_a_source_count_from_the_next_finer_level(store, codes, sizes, expected):
    items = [level(str(n)) for n in range(len(sizes))]
    meaning = levels(store, *items, sizes=sizes, spatial__transform=UTM)
    assert [x for _, x in steps(meaning)] == expected
    assert codes(meaning) == []
    meaning = levels(store, level("0"), level("1", **scale(2, 2)), level("2", **scale(4, 4)), spatial__transform=UTM)
    assert [x for _, x in steps(meaning)] == [10, 20, 40]


def test_a_level_that_ends_elsewhere_along_its_short_axis_is_found(store, codes):
    fine = {"spatial:transform": [1.0, 0.0, 0.0, 0.0, -100.0, 0.0]}
    coarse = {"spatial:transform": [1.5, 0.0, 0.0, 0.0, -200.0, 0.0]}
    items = [level("0", **fine), level("1", "0", **scale(2, 1.5), **coarse)]
    assert codes(levels(store, *items, sizes=(16, 8))) == ["multiscales.extent"]


def test_a_level_of_one_node_needs_a_scale(store, codes):
    place = {"spatial__transform": NODES, "spatial__registration": "node"}
    meaning = levels(store, level("0"), level("1"), sizes=(9, 1), **place)
    assert steps(meaning) == [(-10, 10), None]
    assert codes(meaning) == ["multiscales.scale-missing"]
    meaning = levels(store, level("0"), level("1", "0", **scale(16, 16)), sizes=(9, 1), **place)
    assert steps(meaning) == [(-10, 10), (-160, 160)]
    assert codes(meaning) == []
    store.array("/0/b", ("y", "x"), (9, 2))
    store.array("/1/b", ("y", "x"), (5, 1))
    store.group("/", "multiscales spatial", multiscales={"layout": [level("0"), level("1")]}, **place)
    assert steps(store.read("/")) == [(-10, 10), (-20, 20)]


@pytest.mark.parametrize(
    ("registration", "sizes", "ends"),
    [("pixel", (8, 4, 2), [(5, 75), (10, 70), (20, 60)]), ("node", (9, 5, 3), [(0, 80), (0, 80), (0, 80)])],
)
def test_a_box_places_the_finest_level_where_there_is_no_transform(store, codes, registration, sizes, ends):
    items = [level("0"), level("1", "0", **scale(2, 2)), level("2", "1", **scale(2, 2))]
    place = {"spatial__bbox": [0, 0, 80, 80], "spatial__registration": registration}
    meaning = levels(store, *items, sizes=sizes, **place)
    assert steps(meaning) == [(-10, 10), (-20, 20), (-40, 40)]
    assert codes(meaning) == ["spatial.transform-from-bbox"]
    for n, (first, last) in enumerate(ends):
        x, y = ({c.name: c.values.values() for c in store.read(f"/{n}/b").coords}[dim] for dim in "xy")
        assert (x[0], x[-1], y[0], y[-1]) == (first, last, last, first)


def test_boxes_of_levels_and_layout_items_place_them(store, codes):
    items = [level("0", **{"spatial:bbox": [0, 0, 80, 80]}), level("1")]
    assert steps(levels(store, *items, sizes=(8, 4))) == [(-10, 10), (-20, 20)]
    meaning = levels(store, level("0"), level("1", "0", **scale(2, 2)), sizes=(8, 4))
    assert codes(meaning) == ["spatial.transform-missing"]
    store.group("/0", "spatial", spatial__bbox=[0, 0, 80, 160])
    meaning = store.read("/")
    assert steps(meaning) == [(-20, 10), (-40, 20)]
    assert codes(meaning) == ["spatial.transform-from-bbox"]


@pytest.mark.parametrize(
    ("registration", "sizes", "steps", "found"),
    [
        ("node", (9, 5, 3), (10, 20, 40), []),
        ("node", (9, 4, 2), (10, 20, 40), []),
        ("pixel", (9, 5, 3), (10, 20, 40), []),
        ("pixel", (9, 4, 2), (10, 20, 40), []),
        ("pixel", (101, 51, 26), (10, 20, 40), []),
        ("node", (9, 5, 3), (10, 10, 40), ["multiscales.extent", "multiscales.extent"]),
        ("pixel", (16, 8, 4), (10, 20, 20), ["multiscales.extent"]),
    ],
)
def test_levels_that_do_not_cover_the_same_area_are_found(store, codes, registration, sizes, steps, found):
    items = [
        level(
            str(n),
            str(n - 1) if n else None,
            **(scale(step / steps[n - 1], step / steps[n - 1]) if n else {}),
            **{"spatial:transform": [step, 0.0, 0.0, 0.0, -step, 80.0]},
        )
        for n, step in enumerate(steps)
    ]
    assert codes(levels(store, *items, sizes=sizes, spatial__registration=registration)) == found


def test_a_level_of_another_registration_than_its_pyramid_is_found(store, codes):
    meaning = levels(store, level("0", **{"spatial:transform": NODES}), spatial__registration="node", sizes=(9,))
    assert codes(meaning) == []
    store.array("/0/b", ("y", "x"), (9, 9), "spatial", spatial__registration="pixel")
    assert codes(store.read("/")) == ["multiscales.registration"]
