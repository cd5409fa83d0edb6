"""What holds for all tests."""

from hypothesis import settings

# A machine that does something else beside is slow, not wrong.
settings.register_profile("llmexp", deadline=None)
settings.load_profile("llmexp")
