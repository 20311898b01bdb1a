"""What holds for all tests: no property is judged by the clock, which a busy machine would fail."""

from hypothesis import settings

settings.register_profile("periplus", deadline=None)
settings.load_profile("periplus")
