"""Clean processes: :func:`run_isolated` for a function, the marker `fresh_process` for a test."""

from pytest_tensorizer.process.function import IsolatedError, RemoteTraceback, run_isolated
from pytest_tensorizer.process.zygote import ZygoteError

__all__ = ["IsolatedError", "RemoteTraceback", "ZygoteError", "run_isolated"]
