"""An output file appears whole or not at all."""

import os

import pytest

from periplus.cli.output.target import opened


def test_a_file_takes_its_name_only_when_complete(tmp_path):
    target = tmp_path / "out.npy"
    with opened(str(target)) as file:
        file.write(b"abc")
        assert not target.exists()
    assert target.read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_a_failure_leaves_the_previous_file_and_nothing_else(tmp_path):
    target = tmp_path / "out.npy"
    target.write_bytes(b"before")

    def interrupted():
        with opened(str(target)) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    with opened(str(tmp_path / "out")) as file:
        file.write(b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_dash_is_standard_output(capfdbinary):
    with opened("-") as file:
        file.write(b"1234")
        file.seek(0)
        file.write(b"0")
    assert capfdbinary.readouterr().out == b"0234"
