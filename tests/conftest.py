"""Settings of the whole suite: Hypothesis sets no deadline, as a busy machine misses one with nothing wrong."""

from hypothesis import settings

settings.register_profile("changeling", deadline=None)
settings.load_profile("changeling")
