"""periplus convert: the same index in another form."""

import json

import pytest


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
