"""Values of options: what they take, and what they refuse."""

import click
import pytest

from periplus.cli.options import BBox, Numbers, Pair, Time, Window, settings


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BBox(), "-10,40.5,5,50", (-10.0, 40.5, 5.0, 50.0)),
        (Time(), "2021", "2021"),
        (Time(), "2021-06", "2021-06"),
        (Time(), "2021-06-01T10:00:00Z", "2021-06-01T10:00:00Z"),
        (Time(), "2021-06-01/2021-07", ("2021-06-01", "2021-07")),
        (Time(), "2021/", ("2021", "..")),
        (Time(), "../2021", ("..", "2021")),
        (Window(), "0:512,1024:1536", ((0, 512), (1024, 1536))),
        (Numbers(), "10", 10.0),
        (Numbers(), "10,20", (10.0, 20.0)),
        (Pair(), "key=a=b", ("key", "a=b")),
    ],
)
def test_what_is_meant_is_understood(kind, text, value):
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BBox(), "1,2,3"),
        (BBox(), "a,b,c,d"),
        (BBox(), "nan,0,1,1"),
        (BBox(), "5,0,1,1"),
        (Time(), ""),
        (Time(), "../.."),
        (Time(), "tomorrow"),
        (Time(), "2021-13"),
        (Time(), "2021/2022/2023"),
        (Window(), "5"),
        (Window(), "5:5"),
        (Window(), "-1:5"),
        (Numbers(), "0"),
        (Numbers(), "1,2,3"),
        (Numbers(), "nan"),
        (Pair(), "secret"),
    ],
)
def test_what_is_not_meant_is_refused(kind, text):
    with pytest.raises(click.UsageError) as refused:
        kind.convert(text, None, None)
    assert "secret" not in refused.value.message


def test_storage_options_nest_and_stay_text():
    pairs = [("headers.X-Key", "a.b"), ("headers.Accept", "true"), ("anon", "true"), ("region", "x")]
    assert settings(pairs) == {"headers": {"X-Key": "a.b", "Accept": "true"}, "anon": "true", "region": "x"}
    assert settings([]) is None
