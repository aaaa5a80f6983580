"""The model over bytes that the tests of tasks have."""

from tests.tasks.conftest import byte_model

__all__ = ["byte_model"]
