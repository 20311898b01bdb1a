"""An index that grew, shrank and was refreshed in any order has the rows of one made at once from its last files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import periplus
from periplus.errors import FormatError
from periplus.testing.formats import dted as dteds

EXAMPLES = int(os.environ.get("PERIPLUS_EXAMPLES") or os.environ.get("PERIPLUS_FUZZ") or "1")
"""Generated sequences for each arrangement, besides explicit ones; more with `make fuzz`."""
FILES = 6
STEP = 24
SEEDS = (0, 1, 2)


def write(path: Path, number: int, *, seed: int, place: tuple[int, int], kind: int) -> None:
    """A small tiled TIFF with its place; of kind 1 it is compressed and has a reduced level, of 2 another nodata.

    One of kind 3 is an elevation cell, one of kind 4 is smaller with seed 1; with seed 2 all are unreadable.
    """
    if seed == 2:
        path.write_bytes(b"II*\0 and no more")
        return
    rng = np.random.default_rng(100 * number + seed)
    values = rng.integers(1, 9, (24, 24) if kind == 4 and seed else (40, 48), dtype=np.uint16)
    if kind == 3:
        heights = values[None, :13, :13].astype(np.int16)
        path.write_bytes(dteds.cell(heights, interval=(3000, 3000), west=20 + place[1], south=10 - place[0]))
        return
    x, y = 500000.0 + 10 * place[1], 5000000.0 - 10 * place[0]
    geo = [
        (33550, "d", 3, (10.0, 10.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, x, y, 0.0), True),
        (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633), True),
    ]
    if kind == 2:
        geo.append((42113, "s", 0, str(number % 2), True))
    options: dict[str, Any] = {"tile": (16, 16), "photometric": "minisblack"}
    with tifffile.TiffWriter(path) as out:
        if kind == 1:
            out.write(values, compression="zlib", extratags=geo, subifds=0, **options)
            out.write(values[::2, ::2], compression="zlib", subfiletype=1, **options)
        else:
            out.write(values, extratags=geo, metadata=None, **options)


ARRANGEMENTS: dict[str, tuple[dict[str, Any], Callable[[int], tuple[int, int]], Callable[[int], int]]] = {
    "collect": ({"arrange": "collect"}, lambda n: (0, 100 * n), lambda n: n % 2),
    "stack": ({"arrange": "stack", "pattern": "x_{time:%Y%m%d}_*"}, lambda n: (0, 0), lambda n: 0),
    "mosaic": ({"arrange": "mosaic"}, lambda n: (40 * (n % 2), 48 * (n // 2)), lambda n: 0),
    "overlaps": (
        {"arrange": "mosaic", "duplicates": "last", "order": "name"},
        lambda n: (7 * (n % 3), STEP * n),
        lambda n: 0,
    ),
    "packed": ({"arrange": "stack", "pattern": "x_{time:%Y%m%d}_*"}, lambda n: (0, 0), lambda n: 2),
    "levels": ({"arrange": "mosaic"}, lambda n: (0, 48 * n), lambda n: 1),
    "valid": (
        {"arrange": "mosaic", "duplicates": "first-valid", "order": "name"},
        lambda n: (7 * (n % 3), STEP * n),
        lambda n: 2,
    ),
    "cells": ({"arrange": "mosaic"}, lambda n: (n // 3, n % 3), lambda n: 3),
    "valid cells": (
        {"arrange": "mosaic", "duplicates": "last-valid", "order": "name"},
        lambda n: (n // 3, n % 2),
        lambda n: 3,
    ),
    **{
        f"hidden {rule} {order}": (
            {"arrange": "mosaic", "duplicates": rule, "order": order, "pattern": "x_{time:%Y%m%d}_*"},
            lambda n: (0, 48 * (n // 3)),
            lambda n: 4,
        )
        for rule, order in [("last", "given"), ("first", "time")]
    },
    **{
        f"duplicates {rule}": (
            {"arrange": "stack", "pattern": "x_{time:%Y%m%d}_*", "duplicates": rule},
            lambda n: (0, 0),
            lambda n: 0,
        )
        for rule in ("last", "keep")
    },
    "order": ({"arrange": "stack", "coordinate": "order", "dim": "n"}, lambda n: (0, 0), lambda n: 0),
    **{
        f"series {rule}": (
            {"arrange": "stack", "duplicates": rule, "assets": ["red", "nir"]},
            lambda n: (0, 0),
            lambda n: 0,
        )
        for rule in ("last", "keep")
    },
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "exact", "change", "renew", "break"]),
        st.lists(st.integers(0, FILES - 1), min_size=1, unique=True),
    ),
    min_size=2,
    max_size=5,
)


def rows(index: periplus.Index, root: Path) -> dict[str, Any]:
    """Everything that a reader of the index acts on, file ids replaced by names."""
    files = index.files
    columns = files.path, files.status, files.format, files.datetime.tolist(), files.error
    listed = sorted((Path(path).name, *map(str, facts)) for path, *facts in zip(*columns, strict=True))
    labels = {name: coordinate.values.tolist() for name, coordinate in index.table.catalog.coordinates.items()}
    found: dict[str, Any] = {"files": listed, "coordinates": labels}
    for name, array in index.table.catalog.arrays.items():
        refs = index.table.refs(name)
        count = len(refs)
        owner = np.zeros(count, int) if refs.file is None else refs.file
        part = np.zeros(count, int) if refs.part is None else refs.part
        code = np.zeros(count, int) if refs.encoding is None else refs.encoding
        found[name] = (
            array.shape, array.chunks, array.edges, array.dtype, repr(array.fill), array.georeference,
            [
                (*chunk, p, Path(files.path[f]).name, o, n, repr(array.encodings[c]))
                for *chunk, p, f, o, n, c in zip(
                    *refs.chunk.tolist(), part.tolist(), owner.tolist(), refs.offset.tolist(), refs.length.tolist(),
                    code.tolist(), strict=True,
                )
            ],
        )  # fmt: skip
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ARRANGEMENTS)
def test_any_sequence_of_runs_gives_the_rows_of_one_run(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    options, place, variant = ARRANGEMENTS[kind]
    root = tmp_path_factory.mktemp("growth")
    archive, made = root / "archive", root / "made"
    made.mkdir()
    for number in range(FILES):
        for seed in SEEDS:
            write(made / f"{number}_{seed}.tif", number, seed=seed, place=place(number), kind=variant(number))
    needed = {name: value for name, value in options.items() if name == "assets"}
    folders = ("a", "b") if kind == "collect" else ("",)
    day = {n: n // 2 + 1 if kind.startswith("duplicates") else n + 1 for n in range(FILES)}
    path = {n: archive / folders[n % len(folders)] / f"x_202101{day[n]:02d}_{n}.tif" for n in range(FILES)}
    is_stac = kind.startswith("series")

    def item(n: int) -> Path:
        """A STAC item of one asset; two of each asset have the same time."""
        asset = "red" if n % 3 else "nir"
        properties = {"datetime": f"2021-01-0{n // 4 + 1}T00:00:00Z"}
        found = {"type": "Feature", "id": str(n), "properties": properties, "assets": {asset: {"href": path[n].name}}}
        path[n].with_suffix(".json").write_text(json.dumps(found))
        return path[n].with_suffix(".json")

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=STEPS, name=st.sampled_from(["index.parquet", "index"]))
    @example(steps=[("exact", [0, 1, 2, 4]), ("renew", [2]), ("renew", [1]), ("append", [0, 3])], name="index")
    @example(steps=[("exact", [0, 1, 2]), ("break", [0]), ("renew", [0]), ("exact", [2, 1, 0])], name="index")
    @example(steps=[("append", [0, 1]), ("break", [1, 2]), ("append", [0, 1]), ("renew", [1])], name="index.parquet")
    def check(steps: list[tuple[str, list[int]]], name: str) -> None:
        to = root / name
        shutil.rmtree(archive, ignore_errors=True)
        shutil.rmtree(to, ignore_errors=True) if to.is_dir() else to.unlink(missing_ok=True)
        for folder in folders:
            (archive / folder).mkdir(parents=True, exist_ok=True)
        seeds = dict.fromkeys(range(FILES), 0)
        for number in range(FILES):
            shutil.copy(made / f"{number}_0.tif", path[number])
        held: list[int] = []
        for what, names in steps:
            if what in ("change", "renew", "break"):
                for number in names:
                    seeds[number] = 2 if what == "break" else (seeds[number] + 1) % 2
            append = what in ("append", "renew", "break")
            held = held + [n for n in names if n not in held] if append else names if what == "exact" else held or names
            if all(seeds[number] == 2 for number in held):
                seeds[held[0]] = 0  # one file at least is readable
                names = [held[0], *names]
            for number in range(FILES):
                shutil.copy(made / f"{number}_{seeds[number]}.tif", path[number])
            given_path = item if is_stac else path.__getitem__
            asked = [given_path(n) for n in (names if append else held)]
            alone = append and len(held) > len(names)
            with (
                periplus.index(asked, to=to, append=append, **(needed if alone else options)),
                periplus.open(to, allow=[str(archive)]) as index,
                periplus.index([given_path(n) for n in held], **options) as whole,
            ):
                assert rows(index, root) == rows(whole, root)

    check()


def test_many_appends_leave_few_parts_of_placements(tmp_path: Path) -> None:
    paths = [tmp_path / f"x_{n:02d}.tif" for n in range(21)]
    for n, path in enumerate(paths):
        write(path, n, seed=0, place=(0, 0), kind=0)
    options = {"arrange": "stack", "coordinate": "order", "dim": "n"}
    periplus.index(paths[:2], to=tmp_path / "index", **options).close()
    for path in paths[2:]:
        periplus.index(path, to=tmp_path / "index", append=True).close()
    assert 1 < len(list((tmp_path / "index" / "placements").iterdir())) <= 16
    with (
        periplus.open(tmp_path / "index", allow=str(tmp_path)) as index,
        periplus.index(paths, **options) as whole,
    ):
        assert rows(index, tmp_path) == rows(whole, tmp_path)
        assert index.check_index().ok
    with periplus.index(paths[1:], to=tmp_path / "index", **options) as fewer:
        assert fewer["0/data"].shape[0] == 20


# --- indexes of the release before placements -------------------------------------------------------------------------

GOLDEN = Path(__file__).parent / "golden"
"""Small files, and indexes of all of them but the last by the release before version 3: 1, and 2 for `many`."""
OLDER = {"stack": "s", "mosaic": "m", "overlaps": "o", "collect": "m"}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "golden"))


@pytest.mark.parametrize("form", ["", ".parquet"])
@pytest.mark.parametrize("kind", OLDER)
def test_an_index_of_an_older_version_opens_converts_and_grows(golden: Path, kind: str, form: str) -> None:
    files = [golden / f"{OLDER[kind]}_2021010{n}.tif" for n in range(1, 5)]
    options = ARRANGEMENTS[kind][0] | ({"pattern": "s_{time:%Y%m%d}"} if kind == "stack" else {})
    index, copy = golden / f"{kind}{form}", golden / f"copy{form}"
    with (
        periplus.open(index) as old,
        old.write(copy) as converted,
        periplus.index(files[:3], **options) as three,
    ):
        assert rows(old, golden) == rows(converted, golden) == rows(three, golden)
    for target in (index, copy):
        with (
            periplus.index(files[3], to=target, append=True, refresh="never") as grown,
            periplus.index(files, **options) as four,
        ):
            assert rows(grown, golden) == rows(four, golden)
            assert grown.summary is not None
            read_again = [note for note in grown.summary.warnings if "older version" in note]
            assert bool(read_again) == (kind != "collect")
        with periplus.index(files[:2], to=target, append=True, refresh="never") as grown:  # now it recalls its files
            assert grown.summary is not None
            assert grown.summary.reused == 2


def test_a_large_collection_of_version_2_grows(golden: Path) -> None:
    many = golden / "many"
    many.mkdir()
    for n in range(66):
        shutil.copy(golden / "m_20210101.tif", many / f"f_{n:02d}.tif")
    with (
        periplus.index(many / "f_65.tif", to=golden / "many.parquet", append=True, refresh="never") as grown,
        periplus.index(many, arrange="collect") as whole,
    ):
        assert rows(grown, golden) == rows(whole, golden)


def test_an_older_index_whose_files_are_gone_is_not_added_to_and_stays(golden: Path) -> None:
    (golden / "s_20210102.tif").unlink()
    before = (golden / "stack.parquet").read_bytes()
    with pytest.raises(periplus.PeriplusError, match="must be read again"):
        periplus.index(golden / "s_20210104.tif", to=golden / "stack.parquet", append=True, refresh="never")
    assert (golden / "stack.parquet").read_bytes() == before


# --- columns of users -------------------------------------------------------------------------------------------------


def add_column(index: Path, name: str, values: pa.Array) -> None:
    """Add a column to the files of a dataset, as a user would."""
    path = index / "files.parquet"
    table, keys = pq.read_table(path), pq.read_metadata(path).metadata
    pq.write_table(table.append_column(name, values).replace_schema_metadata(keys), path)


@pytest.mark.parametrize("kind", ["collect", "stack", "mosaic", "overlaps"])
def test_columns_of_users_stay_when_files_come_and_go(tmp_path: Path, kind: str) -> None:
    options, place, variant = ARRANGEMENTS[kind]
    paths = [tmp_path / f"x_202101{n + 1:02d}_{n}.tif" for n in range(4)]
    for n, path in enumerate(paths):
        write(path, n, seed=0, place=place(n), kind=variant(n))
    to = tmp_path / "index"
    periplus.index(paths[:3], to=to, **options).close()
    values = {
        "cloud": pa.array([0.5, None, 2.5]),
        "note": pa.array(["clear", None, "hazy"]),  # a collection of many files has columns of these names
        "x": pa.array([1.5, 2.5, None]),
        "half": pa.array([1, None, 2], pa.float16()),
        "orbit": pa.array([1, None, 2**63], pa.uint64()),
        "local": pa.array([1, 2, None], pa.timestamp("ms")),
        "who": pa.array(["a", None, "c"]),
    }
    for name, column in values.items():
        add_column(to, name, column)

    def check(files: list[int], target: Path = to) -> None:
        with periplus.open(target, allow=[str(tmp_path)], trust=True) as index:
            found = index.sql(f"select path, {', '.join(values)} from files order by path")
        assert found["path"].to_pylist() == [paths[n].name for n in files]
        for name, column in values.items():
            expected = [column[n].as_py() if n < 3 else None for n in files]
            assert found[name].to_pylist() == expected, name

    check([0, 1, 2])
    periplus.index(paths[3], to=to, append=True).close()
    check([0, 1, 2, 3])
    periplus.index([paths[0], paths[2], paths[3]], to=to, **options).close()
    check([0, 2, 3])
    periplus.index([paths[0], paths[2], paths[3]], to=to, refresh="always", **options).close()
    check([0, 2, 3])
    for other in ("copy.parquet", "copy.duckdb"):
        periplus.open(to, allow=[str(tmp_path)]).write(tmp_path / other).close()
        check([0, 2, 3], tmp_path / other)
    add_column(to, "boxes", pa.array([[1, 2], [3], []]))
    for run in (
        lambda: periplus.index(paths[1], to=to, append=True),
        lambda: periplus.index(paths, to=to, **options),
        lambda: periplus.open(to, allow=[str(tmp_path)]).write(tmp_path / "more.parquet"),
    ):
        with pytest.raises(FormatError, match=r"'boxes'.*would be lost"):
            run()


def test_columns_of_users_that_would_be_taken_for_others_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"x_{n}.tif" for n in range(70)]
    for n, path in enumerate(paths):
        write(path, n, seed=0, place=(0, 100 * n), kind=0)
    to = tmp_path / "index"
    periplus.index(paths[:3], to=to, arrange="collect").close()
    add_column(to, "x", pa.array([1.5, 2.5, None]))
    with pytest.raises(FormatError, match=r"'x'.*that collections use"):
        periplus.index(paths[3:], to=to, append=True)
    periplus.index(paths[:3], to=tmp_path / "case", arrange="collect").close()
    add_column(tmp_path / "case", "Size", pa.array([1, 2, 3]))
    with periplus.open(tmp_path / "case") as index, pytest.raises(FormatError, match=r"'size' and 'Size'.*case alone"):
        index.sql('select "Size" from files')
    with pytest.raises(FormatError, match=r"'size' and 'Size'.*case alone"):
        periplus.index(paths[3], to=tmp_path / "case", append=True)
