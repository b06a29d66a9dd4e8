"""Torch in a zygote: one thread, because a pool of threads would be missing in every fork."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pytest_tensorizer.after_import import AfterImport


class OneThread:
    """Holds torch at one thread from its import on, and gives a fork the number of threads that was wanted.

    Once libgomp has made its pool, the next matrix product of every forked child waits for threads that are not there.
    """

    def __init__(self) -> None:
        self._torch: Any = None
        self._wanted = 1
        self._import = AfterImport("torch", self._hold)

    def _hold(self, torch: ModuleType) -> None:
        self._torch = torch
        self._set, self._get = torch.set_num_threads, torch.get_num_threads
        self._wanted = self._get()
        self._set(1)
        torch.set_num_threads, torch.get_num_threads = self._set_num_threads, self._get_num_threads  # type: ignore[attr-defined]

    def release(self) -> None:
        """In a fork: as many threads as there would be without a zygote."""
        self._import.cancel()
        if self._torch is not None:
            torch, self._torch = self._torch, None
            torch.set_num_threads, torch.get_num_threads = self._set, self._get
            self._set(self._wanted)

    # They stand in for torch's own, and somebody may have made a name of his own for one: so they go on working.

    def _set_num_threads(self, number: int) -> None:
        if self._torch is None:
            self._set(number)
        else:
            self._wanted = number

    def _get_num_threads(self) -> int:
        return self._wanted if self._torch is not None else self._get()
