"""periplus convert: the same index in another form."""

import json

import pytest

from periplus.testing.scenes import tile


@pytest.mark.parametrize(
    ("name", "more"),
    [("copy.parquet", []), ("copy.duckdb", ["--trust"]), ("copy", []), ("odd.name", ["--form=dataset"])],
)
def test_the_copy_says_the_same(index, periplus, tmp_path, name, more):
    target = tmp_path / name
    form = [option for option in more if option.startswith("--form")]
    trust = [option for option in more if option == "--trust"]
    done = periplus("convert", index, target, *form)
    assert (done.code, done.out) == (0, "")
    assert "104 references to 4 files" in done.err
    first, second = (json.loads(periplus("info", url, "--json", *trust).out) for url in (index, target))
    assert {**first, "index": ""} == {**second, "index": ""}


def test_an_image_is_not_replaced(index, periplus, tmp_path):
    image = tmp_path / "other.tif"
    image.write_bytes(b"II*\0 an image")
    done = periplus("convert", index, image, "--form=flat")
    assert done.code == 2
    assert "the target is not a flat Parquet index; nothing was written" in done.err
    assert image.read_bytes() == b"II*\0 an image"


def test_a_database_is_not_opened_on_faith(index, periplus, tmp_path):
    periplus("convert", index, tmp_path / "copy.duckdb")
    done = periplus("info", tmp_path / "copy.duckdb")
    assert done.code == 2
    assert done.err.startswith("periplus: denied: ")


def test_a_copy_reads_the_same_pixels(index, periplus, tmp_path):
    periplus("convert", index, tmp_path / "copy")
    for url, out in ((index, "a.npy"), (tmp_path / "copy", "b.npy")):
        assert periplus("read", url, "--max-size", 100, "-o", tmp_path / out).code == 0
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.parquet", "--portable"], "--portable does not apply to writing a flat Parquet index; it has no options"),
        (
            ["a.icechunk", "--zarr-format=2"],
            "an Icechunk repository; its options are --append, --codecs, --skip",
        ),
        (["a", "--form=kerchunk", "--zarr-format=3"], "use --zarr-format 2"),
    ],
)
def test_an_option_of_another_form_is_a_usage_error(index, periplus, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = periplus("convert", index, *arguments)
    assert done.code == 2
    assert done.err.startswith("periplus: usage: ")
    assert message in done.err


def test_why_an_array_is_skipped_names_options_of_the_command_line(periplus, tmp_path):
    tile(tmp_path / "a.tif", 0, 0, bands=3, interleave="pixel")
    tile(tmp_path / "b.tif", 0, 0, bands=1)
    assert periplus("index", tmp_path / "a.tif", tmp_path / "b.tif", "-o", tmp_path / "i.parquet").code == 0
    done = periplus(
        "convert", tmp_path / "i.parquet", tmp_path / "o.json", "--codecs", "standard", "--skip-unsupported"
    )
    assert done.code == 0
    assert "use --zarr-format 3" in done.err


def test_a_dry_run_of_no_repair_is_a_mistake_in_usage(index, periplus):
    done = periplus("validate", index, "--dry-run")
    assert (done.code, done.err.partition(",")[0]) == (2, "periplus: usage: --dry-run has no effect without --fix")
