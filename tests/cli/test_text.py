"""Rows and numbers for people."""

from periplus.cli.output.text import count, extent, size, table


def test_numbers_stand_right_and_words_left():
    assert table(("name", "n"), [("a", 5), ("bcdef", 1234)]).splitlines() == [
        "name      n",
        "a         5",
        "bcdef  1234",
    ]


def test_a_table_of_nothing_is_its_header():
    assert table(("a", "b"), []) == "a  b"


def test_a_cell_cannot_speak_to_the_terminal():
    shown = table(("path",), [("evil\x1b[2J\nname\u202e",)])
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert len(shown.splitlines()) == 2


def test_sizes_and_counts():
    assert [size(n) for n in (0, 999, 1000, 73_500_000, 5 * 10**15)] == ["0 B", "999 B", "1 kB", "73.5 MB", "5,000 TB"]
    assert (count(1, "file"), count(2556, "file")) == ("1 file", "2,556 files")
    assert extent((24, 3, 5)) == "24 × 3 × 5"
