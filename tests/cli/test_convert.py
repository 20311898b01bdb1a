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
