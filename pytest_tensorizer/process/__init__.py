"""Clean processes: :func:`run_isolated` for a function, the marker `fresh_process` for a test."""

from pytest_tensorizer.process.conversation import ZygoteError
from pytest_tensorizer.process.function import IsolatedError, RemoteTraceback, run_isolated

__all__ = ["IsolatedError", "RemoteTraceback", "ZygoteError", "run_isolated"]
