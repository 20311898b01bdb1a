"""Fixtures of the Zarr face."""

import pytest

from periplus.testing.fixtures import s3, server

__all__ = ["s3", "server"]


@pytest.fixture
def our_codecs():
    """Our codecs registered last, also where osml-imagery-io, which registers the same URIs when imported, is there."""
    from contextlib import suppress
    from importlib import import_module

    from periplus.zarr.codecs import register

    with suppress(ImportError):
        import_module("aws.osml.io.zarr_codecs")
    register()
