"""Settings shared by all tests."""

from hypothesis import settings

# A shared machine can be slow for reasons that have nothing to do with the code under test.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
