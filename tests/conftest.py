"""Settings and servers of all tests: examples of properties, and Ctrl-C whatever the parent process chose."""

import os
import signal

from hypothesis import settings

# Here, so that all tests of a process share one S3 server: a directory that imports it has one of its own.
from periplus.testing.fixtures import s3, server

__all__ = ["s3", "server"]

EXAMPLES = 25 * int(os.environ.get("PERIPLUS_FUZZ") or "1")
"""Examples of a property that does not ask for another number; others in every run, since seeds are random."""
settings.register_profile("periplus", deadline=None, max_examples=EXAMPLES)
settings.load_profile("periplus")

# A shell that runs the tests in the background ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
