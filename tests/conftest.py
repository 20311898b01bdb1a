"""Settings for all tests: examples of properties, and Ctrl-C interrupts whatever the parent process chose."""

import os
import signal

from hypothesis import settings

EXAMPLES = 25 * int(os.environ.get("PERIPLUS_FUZZ") or "1")
"""Examples of a property that does not ask for another number; others in every run, since seeds are random."""
settings.register_profile("periplus", deadline=None, max_examples=EXAMPLES)
settings.load_profile("periplus")

# A shell that runs the tests in the background ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
