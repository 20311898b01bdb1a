"""periplus index: files in, an index and an honest summary out."""

import io
import json
import os
import shutil

import pytest

import periplus as library


def test_it_writes_an_index_and_says_so_on_stderr(archive, periplus):
    target = archive.parent / "out.parquet"
    done = periplus("index", f"{archive}/*.tif", "-o", target, "--arrange", "stack", "--pattern", "scene_{time:%Y%m%d}")
    assert (done.code, done.out) == (0, "")
    assert "4 files" in done.err
    assert library.open(target)["0/data"].shape == (4, 3, 256, 320)


@pytest.mark.parametrize("name", ["out.json", "out.icechunk", "out.zarr", "out.CSV"])
def test_the_name_of_something_else_is_refused_before_anything_is_read(archive, periplus, name):
    target = archive.parent / name
    done = periplus("index", archive / "there is none.tif", "-o", target)
    assert (done.code, done.out) == (2, "")
    assert ".parquet or .duckdb" in done.err
    assert "periplus convert converts an index to .json" in done.err
    assert not target.exists()
    if name != "out.icechunk":  # a folder, whatever else it is called
        assert periplus("index", archive, "-o", f"{target}/").code == 0
        assert periplus("info", f"{target}/").code == 0


def test_a_dash_reads_urls_from_standard_input(archive, periplus, monkeypatch):
    names = sorted(map(str, archive.glob("*.tif")))
    monkeypatch.setattr("sys.stdin", io.StringIO("# two of them\n" + "\n".join(names[:2]) + "\n\n"))
    done = periplus("index", "-", names[2], "-o", archive.parent / "out.parquet", "--json")
    assert (done.code, json.loads(done.out)["files"]) == (0, 3)


def test_json_summary_is_on_stdout(archive, periplus):
    done = periplus("index", f"{archive}/*.tif", "-o", archive.parent / "out.parquet", "--json")
    said = json.loads(done.out)
    assert (done.code, said["files"], said["failed"]) == (0, 4, 0)
    assert said["rows"] == 104


def test_a_bad_file_is_told_and_the_rest_goes_on(archive, periplus):
    (archive / "scene_20230601.tif").write_bytes(b"II*\0 this is no TIFF")
    target = archive.parent / "out.parquet"
    done = periplus("index", f"{archive}/*.tif", "-o", target)
    assert done.code == 1
    assert "1 failed" in done.err
    assert "scene_20230601.tif" in done.err
    assert list(library.open(target).files.status).count("error") == 1


def test_quiet_says_nothing(archive, periplus):
    done = periplus("index", f"{archive}/*.tif", "-o", archive.parent / "out.parquet", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_without_a_target_nothing_is_written(archive, periplus):
    before = sorted(os.listdir(archive.parent))
    assert periplus("index", f"{archive}/*.tif").code == 0
    assert sorted(os.listdir(archive.parent)) == before


def test_nothing_found_is_an_error(tmp_path, periplus):
    done = periplus("index", f"{tmp_path}/nothing.tif", "-o", tmp_path / "out.parquet")
    assert done.code == 2
    assert done.err.startswith("periplus: missing: ")
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "out.parquet").exists()


def test_files_that_do_not_fit_are_named_and_can_be_skipped(archive, periplus):
    from_tests = archive / "scene_20230701.tif"
    import numpy as np
    import rasterio

    with rasterio.open(from_tests, "w", driver="GTiff", width=8, height=8, count=1, dtype="uint8",
                       crs="EPSG:32633", transform=rasterio.Affine(10, 0, 5e5, 0, -10, 4.2e6)) as image:  # fmt: skip
        image.write(np.zeros((1, 8, 8), np.uint8))
    stack = ("index", f"{archive}/*.tif", "--arrange", "stack", "--pattern", "scene_{time:%Y%m%d}")
    done = periplus(*stack, "-o", archive.parent / "out.parquet")
    assert done.code == 2
    assert done.err.startswith("periplus: conflict: ")
    assert "scene_20230701.tif" in done.err
    done = periplus(*stack, "-o", archive.parent / "out.parquet", "--skip-misfits")
    assert done.code == 1
    assert library.open(archive.parent / "out.parquet")["0/data"].shape[0] == 4


@pytest.mark.parametrize("option", [["--arrange", "pile"], ["--concurrency", "0"], ["--storage-option", "nothing"]])
def test_wrong_options_are_one_line_and_exit_2(option, archive, periplus):
    done = periplus("index", f"{archive}/*.tif", *option)
    assert done.code == 2
    assert done.err.startswith("periplus: usage: ")
    assert "see periplus index --help" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.fixture
def bands(tmp_path, archive):
    """Two bands of each of four days."""
    for path in sorted(archive.glob("scene_*.tif")):
        for band in ("B02", "B03"):
            shutil.copy(path, tmp_path / f"{path.stem}_{band}.tif")
    return tmp_path


def test_a_field_that_is_not_used_is_a_mistake_in_usage(bands, periplus):
    out = bands / "out.parquet"
    done = periplus("index", f"{bands}/*_B*.tif", "-o", out, "--arrange", "stack", "--pattern", "{time:%Y%m%d}_{band}")
    assert done.code == 2
    assert done.err.startswith("periplus: usage: the field 'band' of the pattern is not used")
    assert "--arrange 'collect'" in done.err
    assert "duplicates" not in done.err
    assert not out.exists()


def test_files_left_out_by_duplicates_are_reported(bands, periplus):
    out = bands / "out.parquet"
    command = ("index", f"{bands}/*_B*.tif", "-o", out, "--arrange", "stack", "--pattern", "{time:%Y%m%d}")
    done = periplus(*command)
    assert done.code == 2
    assert "differ in 'B03' and 'B02'" in done.err
    assert "last" not in done.err
    done = periplus(*command, "--duplicates", "last")
    assert done.code == 0
    assert "4 of 8 files indexed" in done.err
    assert "4 replaced by other files:" in done.err
    assert done.err.count("_B02.tif: replaced: ") == 4
    said = json.loads(periplus(*command, "--duplicates", "last", "--json").out)
    assert (said["replaced"], said["failed"], said["errors"], len(said["replacements"])) == (4, 0, [], 4)
    shown = periplus("info", out).out
    assert "4 replaced" in shown
    assert "failed" not in shown


def test_a_pattern_without_a_stack_gives_times_to_query_by(bands, periplus):
    out = bands / "out.parquet"
    done = periplus("index", f"{bands}/*_B*.tif", "-o", out, "--arrange", "collect", "--pattern", "{time:%Y%m%d}")
    assert done.code == 0
    found = json.loads(periplus("query", out, "--time", "2023-01-01", "--files", "--format", "json").out)
    assert [os.path.basename(row["path"]) for row in found] == ["scene_20230101_B02.tif", "scene_20230101_B03.tif"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--arrange", "collect", "--duplicates", "last"], "--duplicates has no effect with --arrange 'collect'"),
        (["--arrange", "mosaic", "--dim", "z"], "--dim has no effect with --arrange 'mosaic'"),
        (["--arrange", "collect", "--skip-misfits"], "--skip-misfits has no effect"),
        (["--append"], "--append has no effect without --output"),
        (["--arrange", "mosaic", "--duplicates", "keep"], "--duplicates of a mosaic is one of error, first"),
        (["--refresh", "never"], "--refresh has no effect without --output"),
        (["--assets", "red"], "--assets chooses among the assets of STAC items"),
        (["--dim", ""], "--dim is empty; it is the name of a dimension"),
    ],
)
def test_an_option_without_effect_is_a_mistake_in_usage(options, said, archive, periplus):
    done = periplus("index", f"{archive}/*.tif", *options)
    assert done.code == 2
    assert done.err.startswith(f"periplus: usage: {said}")
    assert "=" not in done.err


@pytest.mark.parametrize("name", ["out.parquet", "out", "out.duckdb"])
def test_appending_nothing_leaves_the_index_as_it_is(name, archive, periplus, monkeypatch):
    target = archive.parent / name
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert periplus("index", "-", "-o", target, "--append").code == 2  # there is no index yet
    assert periplus("index", f"{archive}/*.tif", "-o", target).code == 0
    files = {path: path.read_bytes() for path in [target, *target.rglob("*")] if path.is_file()}
    done = periplus("index", "-", "-o", target, "--append")
    assert done.code == 0
    assert "nothing to add" in done.err
    assert files == {path: path.read_bytes() for path in [target, *target.rglob("*")] if path.is_file()}
    shown = json.loads(periplus("index", "-", "-o", target, "--append", "--json").out)
    assert (shown["files"], shown["reused"], shown["failed"]) == (4, 4, 0)
    assert shown["bytes"] == sum(path.stat().st_size for path in archive.iterdir())
    assert periplus("index", "-", "-o", target).code == 2  # not an append: the index would be empty


def test_append_keeps_the_arrangement_and_what_was_indexed(archive, periplus):
    names = sorted(map(str, archive.glob("*.tif")))
    target = archive.parent / "out"
    pattern = "scene_{time:%Y%m%d}"
    assert periplus("index", *names[:2], "-o", target, "--arrange", "collect", "--pattern", pattern).code == 0
    assert periplus("index", names[2], "-o", target, "--append").code == 0
    assert {name.split("/")[0] for name in library.open(target).arrays} == {name[-18:-4] for name in names[:3]}
    done = periplus("index", names[3], "-o", target, "--append", "--skip-misfits", "--pattern", "{time:%Y}.tif")
    assert done.code == 2
    assert "this index was made with --pattern" in done.err
    assert list(library.open(target).files.status) == ["ok"] * 3
