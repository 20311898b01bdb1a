import random

import pytest

from periplus.fetch import Fetch


@pytest.fixture
def fetch():
    with Fetch(retries=6, stall=5.0, deadline=20.0) as one:
        yield one


@pytest.fixture(scope="session")
def payload() -> bytes:
    return random.Random(7).randbytes(300_000)
