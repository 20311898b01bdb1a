"""Small indexes that the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from periplus.fetch import Fetch
from periplus.testing.fixtures import s3

__all__ = ["s3"]


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    with Fetch() as one:
        yield one
