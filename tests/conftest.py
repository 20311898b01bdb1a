"""Settings for all tests: no property has a deadline, and Ctrl-C interrupts whatever the parent process chose."""

import signal

from hypothesis import settings

settings.register_profile("periplus", deadline=None)
settings.load_profile("periplus")

# A shell that runs the tests in the background ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
