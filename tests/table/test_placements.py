"""Placements at rest: the same in every form, shown in SQL, and refused where a number makes no sense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import periplus
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Placements
from periplus.table.parquet.placements import dump_descriptions, placements_from_arrow, placements_to_arrow
from periplus.testing.scenes import tile

FORMS = ["m.parquet", "m", "m.duckdb"]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("scenes")
    return [tile(folder / f"x_2021010{n + 1}.tif", 0, 64 * n, (64, 64), bands=1) for n in range(3)]


def plain(placements: Placements | None) -> list[Any]:
    assert placements is not None
    return [
        placements.file.tolist(), placements.description.tolist(), [placements.arrays[n] for n in placements.array],
        placements.origin.tolist(), placements.extent.tolist(), placements.order.tolist(), placements.corner.tolist(),
        [array.name for array in placements.descriptions],
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_keeps_placements(scenes: list[Path], tmp_path: Path, form: str) -> None:
    with periplus.index(scenes, to=tmp_path / "first.parquet", arrange="mosaic") as index:
        expected = plain(index.table.placements)
        assert expected[3] == [[0, 0, 0], [0, 0, 64], [0, 0, 128]]
        index.write(tmp_path / form)
    with periplus.open(tmp_path / form, trust=True) as index:
        assert plain(index.table.placements) == expected


@pytest.mark.parametrize("form", FORMS)
def test_placements_are_shown_in_sql(scenes: list[Path], tmp_path: Path, form: str) -> None:
    to = tmp_path / form
    query = 'select file_id, source, "array", y_origin, x_origin, x_extent from placements order by all'
    with periplus.index(scenes, to=to, arrange="mosaic") as index:
        rows = index.sql(query).to_pylist()
        assert [tuple(row.values()) for row in rows] == [(n, "0/data", "0/data", 0, 64 * n, 64) for n in range(3)]
    same = []
    for scene in scenes:
        same.append(tmp_path / scene.name)
        same[-1].write_bytes(scenes[0].read_bytes())
    with periplus.index(same, to=to, arrange="stack", coordinate="order", dim="step", refresh="always") as index:
        rows = index.sql('select step_origin, step_extent, "order" from placements order by file_id').to_pylist()
        assert [tuple(row.values()) for row in rows] == [(n, 1, n) for n in range(3)]
    with periplus.index(scenes, to=to, arrange="collect", refresh="always") as index:
        rows = index.sql(query).to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            (n, "0/data", f"x_2021010{n + 1}/0/data", 0, 0, 64) for n in range(3)
        ]


def test_placements_of_a_large_collection_follow_from_its_groups(scenes: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(70):
        (folder / f"s_{n:02d}.tif").write_bytes(scenes[n % 3].read_bytes())
    with periplus.index(folder, to=tmp_path / "c", arrange="collect") as index:
        rows = index.sql('select file_id, "array", x_extent from placements order by all').to_pylist()
    assert [tuple(row.values()) for row in rows] == [(n, f"s_{n:02d}/0/data", 64) for n in range(70)]


def change(name: str, values: Any) -> Any:
    def changed(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        column = pa.array(values, table.schema.field(name).type if not isinstance(values, pa.Array) else values.type)
        return table.set_column(place, name, column)

    return changed


@pytest.mark.parametrize(
    ("forge", "match"),
    [
        (change("file_id", [0, 1, 3]), "outside 0..2"),
        (change("file_id", [0, -1, 2]), "outside 0..2"),
        (change("description", [0, 9, 0]), "outside"),
        (change("array", pa.array(["0/data", "1/data", "0/data"])), "no array of the index"),
        (change("array", pa.array([1, 2, 3])), "must hold names"),
        (change("x_origin", [0, 64, 192]), "exceeds its array"),
        (change("x_origin", [0, -1, 128]), "exceeds its array"),
        (change("x_extent", [64, 2**62, 64]), "exceeds its array"),
        (change("x_extent", [64, 32, 64]), "another extent"),
        (change("x_extent", [64, 0, 64]), "another extent"),
        (change("file_id", [0, 1, 1]), "two placements"),
        (change("y_origin", [0, None, 0]), "null"),
        (change("x", [0.0, float("inf"), 0.0]), "infinite"),
        (change("y", pa.array(["a", "b", "c"])), "numbers"),
        (change("order", pa.array([0.5, 1.0, 2.0])), "integers"),
        (lambda table: table.drop_columns(["x_extent"]), "no column 'x_extent'"),
        (lambda table: table.drop_columns(["order"]), "no column 'order'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(scenes: list[Path], forge: Any, match: str) -> None:
    with periplus.index(scenes, arrange="mosaic") as index:
        catalog, placements = index.table.catalog, index.table.placements
        assert placements is not None
        table, text = placements_to_arrow(placements, catalog), dump_descriptions(placements)
        again = placements_from_arrow(table, text, catalog, 3, Limits())
        np.testing.assert_array_equal(again.origin, placements.origin)
        with pytest.raises(FormatError, match=match):
            placements_from_arrow(forge(table), text, catalog, 3, Limits())
        stacked = replace(catalog, arrangement={"kind": "stack"})
        with pytest.raises(FormatError, match="in no array"):
            placements_from_arrow(change("array", [None, "0/data", "0/data"])(table), text, stacked, 3, Limits())
        bare = json.loads(text)
        bare["arrays"]["0/0/data"]["encodings"] = []
        with pytest.raises(FormatError, match="cannot be a part"):
            placements_from_arrow(table, json.dumps(bare), catalog, 3, Limits())
        bare["arrays"]["0/0/data"]["encodings"] = [[{"name": "transpose"}, {"name": "bytes"}]]
        with pytest.raises(FormatError, match="transpose order"):
            placements_from_arrow(table, json.dumps(bare), catalog, 3, Limits())
        with pytest.raises(FormatError):
            placements_from_arrow(table, text.replace('"0/0/data"', '"7/0/data"'), catalog, 3, Limits())
