"""Clean processes: :func:`run_isolated` for a function, the marker `fresh_process` for a test."""

from pytest_tensorizer.process.function import IsolatedError, RemoteTraceback, run_isolated

__all__ = ["IsolatedError", "RemoteTraceback", "run_isolated"]
