"""Adding files to an index: its arrangement stays, what it has stays, and what does not fit is refused by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import periplus
from periplus.errors import ConflictError, MissingError
from periplus.testing.scenes import tile

TIME = "x_{time:%Y%m%d}"


@pytest.fixture(params=["out", "out.parquet"])
def to(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


def days(folder: Path, tiff: SimpleNamespace, *numbers: int, **options: Any) -> list[Path]:
    for k in numbers:
        tiff.write(folder / f"x_202101{k:02d}.tif", k, **options)
    return [folder / f"x_202101{k:02d}.tif" for k in numbers]


def kept(index: periplus.Index) -> set[str]:
    """Names of files that are indexed well."""
    files = index.files
    return {Path(path).name for path, status in zip(files.path, files.status, strict=True) if status == "ok"}


def test_a_mosaic_stays_a_mosaic_with_its_rules(tmp_path: Path, to: Path) -> None:
    paths = [tile(tmp_path / f"x_2021010{k}.tif", 0, 32 * k) for k in (3, 2, 1)]
    options: dict[str, Any] = {"arrange": "mosaic", "duplicates": "first", "order": "time", "pattern": TIME}
    periplus.index(paths[:2], to=to, **options).close()
    periplus.index(paths[2], to=to, append=True).close()
    with periplus.index(paths, **options) as whole, periplus.open(to, allow=[str(tmp_path)]) as index:
        assert index.table.catalog.arrangement["kind"] == "mosaic"
        assert (index["0/data"][...] == whole["0/data"][...]).all()
        assert index.table.catalog.arrangement["asked"] == whole.table.catalog.arrangement["asked"]


@pytest.mark.parametrize("options", [{"arrange": "stack"}, {}])
def test_a_stack_stays_a_stack_and_refuses_a_misfit_by_name(
    tmp_path: Path, tiff: SimpleNamespace, to: Path, options: dict[str, Any]
) -> None:
    paths = days(tmp_path, tiff, 1, 2)
    periplus.index(paths, to=to, pattern=TIME, **options).close()
    misfits = days(tmp_path, tiff, 4, 5, 6, size=128)
    with pytest.raises(ConflictError, match=r"x_2021010[456]\.tif differs from x_2021010[12]\.tif"):
        periplus.index(misfits, to=to, append=True)
    with pytest.raises(ConflictError, match=r"x_2021010[456]\.tif differs from x_2021010[12]\.tif"):
        periplus.index([*misfits, *paths], to=to, append=True)
    with periplus.open(to) as index:
        assert index["0/data"].shape[0] == 2
    # More misfits than files that fit: the index decides, not the majority.
    with periplus.index([*misfits, *days(tmp_path, tiff, 7)], to=to, append=True, skip_misfits=True) as index:
        assert kept(index) == {"x_20210101.tif", "x_20210102.tif", "x_20210107.tif"}
        assert index["0/data"].shape[0] == 3
        assert index.summary is not None
        assert (index.summary.arrangement, index.summary.failed) == ("stack", 3)


def test_files_of_the_same_time_stay_steps_of_their_own(tmp_path: Path, tiff: SimpleNamespace, to: Path) -> None:
    paths = [days(tmp_path / name, tiff, 1)[0] for name in ("a", "b", "c")]
    periplus.index(paths[:2], to=to, arrange="stack", pattern=TIME, duplicates="keep").close()
    with periplus.index(paths[2], to=to, append=True) as index:
        assert index["0/data"].shape[0] == 3


def test_a_stack_by_order_stays_one_when_a_file_with_a_time_is_added(
    tmp_path: Path, tiff: SimpleNamespace, to: Path
) -> None:
    periplus.index(days(tmp_path, tiff, 1, 2), to=to, arrange="stack", dim="band").close()
    with periplus.index(days(tmp_path, tiff, 3, moment="2020:01:01 00:00:00"), to=to, append=True) as index:
        assert index.table.catalog.coordinates["band"].values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("arrange", ["collect", "auto"])
def test_a_collection_stays_a_collection(tmp_path: Path, tiff: SimpleNamespace, to: Path, arrange: str) -> None:
    sizes = {"collect": 96, "auto": 128}
    paths = [*days(tmp_path, tiff, 1), *days(tmp_path, tiff, 2, size=sizes[arrange])]
    periplus.index(paths, to=to, arrange=arrange, pattern=TIME).close()
    with periplus.index(days(tmp_path, tiff, 3), to=to, append=True, skip_misfits=True) as index:
        assert list(index.arrays) == [f"x_2021010{k}/0/data" for k in (1, 2, 3)]
        assert index.summary is not None
        assert any("stays one" in note for note in index.summary.warnings) == (arrange == "auto")


def test_an_index_of_one_file_may_become_a_stack(tmp_path: Path, tiff: SimpleNamespace, to: Path) -> None:
    first, second = days(tmp_path, tiff, 1, 2)
    periplus.index(first, to=to, pattern=TIME, append=True).close()
    with periplus.index(second, to=to, append=True) as index:
        assert index["0/data"].shape[0] == 2


def test_another_pattern_is_refused_and_drops_nothing(tmp_path: Path, tiff: SimpleNamespace, to: Path) -> None:
    for k, band in enumerate(("B02", "B03")):
        for day in (1, 2, 3):
            tiff.write(tmp_path / f"x_2021010{day}_{band}.tif", 10 * k + day)
    periplus.index(f"{tmp_path}/*_B02.tif", to=to, pattern=f"{TIME}_B02.tif").close()
    other: dict[str, Any] = {"to": to, "append": True, "skip_misfits": True, "pattern": f"{TIME}_B03.tif"}
    with pytest.raises(ConflictError, match=r"this index was made with pattern='x_.*_B02\.tif', not"):
        periplus.index(f"{tmp_path}/*_B03.tif", **other)
    with pytest.raises(ConflictError, match=r"_B02\.tif does not match .* append does not drop it"):
        periplus.index(f"{tmp_path}/*_B03.tif", arrange="mosaic", **other)
    with periplus.open(to) as index:
        assert kept(index) == {f"x_2021010{day}_B02.tif" for day in (1, 2, 3)}


def test_options_are_judged_by_the_arrangement_of_the_index(tmp_path: Path, to: Path, tiff: SimpleNamespace) -> None:
    paths = [tile(tmp_path / f"{k}.tif", 0, 32 * k) for k in range(3)]
    periplus.index(paths[:2], to=to, arrange="mosaic", duplicates="last").close()
    with periplus.index(paths[2], to=to, append=True, duplicates="first-valid", order="name") as index:
        assert index.table.catalog.arrangement["asked"]["duplicates"] == "first-valid"
    other = to.with_name("other" + to.suffix)
    periplus.index(days(tmp_path / "days", tiff, 1, 2), to=other, arrange="stack", pattern=TIME).close()
    wrong = ({"duplicates": "first-valid"}, "duplicates= of a stack is one of"), ({"order": "name"}, "no effect")
    for option, match in wrong:
        with pytest.raises(ValueError, match=match):
            periplus.index(days(tmp_path / "days", tiff, 3), to=other, append=True, **option)


def test_files_that_an_index_had_elsewhere_are_not_allowed_by_adding_to_it(tmp_path: Path) -> None:
    """Whoever wrote an index chose its files; a user who adds one allows that one, and the folder of the index."""
    private, shared, named = tmp_path / "private", tmp_path / "shared", tmp_path / "named"
    for folder in (private, shared, named):
        folder.mkdir()
    for n, path in enumerate([private / "a.tif", shared / "b.tif", named / "c.tif", named / "d.tif"]):
        tile(path, 0, 400 * n, (64, 64))
    (shared / "link.tif").symlink_to(private / "a.tif")
    to = shared / "i.parquet"
    periplus.index([private / "a.tif", shared / "b.tif", shared / "link.tif"], to=to, arrange="collect").close()
    for again in range(2):  # the second run changes nothing
        with periplus.index(named / "c.tif", to=to, append=True) as index, pickle.loads(pickle.dumps(index)) as copy:
            for each in (index, copy):
                assert len(each.files) == 4, again
                denied = set()
                for name, array in each.arrays.items():
                    try:
                        array[...]
                    except periplus.DeniedError:
                        denied.add(name.partition("/0/")[0].rpartition("/")[2])
                assert denied == {"a", "link"}


@pytest.mark.parametrize("options", [{"arrange": "stack", "pattern": TIME}, {"arrange": "collect"}])
def test_files_that_cannot_be_read_are_recorded_next_to_those_of_the_index(
    tmp_path: Path, tiff: SimpleNamespace, to: Path, options: dict[str, Any]
) -> None:
    paths = days(tmp_path, tiff, 1, 2)
    periplus.index(paths, to=to, **options).close()
    bad = tmp_path / "x_20210103.tif"
    bad.write_bytes(b"II*\0 and no more")
    with periplus.index(bad, to=to, append=True) as index:
        assert index.summary is not None
        assert (index.summary.ok, index.summary.failed) == (2, 1)
        assert kept(index) == {path.name for path in paths}
        assert (index.files.error[2] or "").startswith("format: ")
    with pytest.raises(MissingError, match="nothing to index"):
        periplus.index(str(tmp_path / "nothing*.tif"), to=to, append=True)
