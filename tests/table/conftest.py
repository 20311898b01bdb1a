"""Small indexes that the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from periplus.fetch import Fetch


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    with Fetch() as one:
        yield one
