"""Which device `auto` means, found without touching an accelerator or importing torch."""

from __future__ import annotations

import os
import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path


def choose(wanted: str) -> str:
    """ "cpu" or "cuda:N" for what was asked: `auto`, `cpu`, `cuda`, `cuda:N`.

    Raises:
        ValueError: it is none of these.
    """
    if wanted == "auto":
        return "cuda:0" if _nvidia_cards() and torch_is_built_for_cuda() else "cpu"
    if wanted == "cuda":
        return "cuda:0"
    if wanted == "cpu" or re.fullmatch(r"cuda:\d+", wanted):
        return wanted
    raise ValueError(f"{wanted!r} is no device: use auto, cpu, cuda or cuda:N")


def _nvidia_cards() -> bool:
    """Whether the kernel driver shows a card that this process may see. The driver's library is not called."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return False
    return any(re.fullmatch(r"nvidia\d+", path.name) for path in Path("/dev").glob("nvidia*"))


def torch_is_built_for_cuda() -> bool:
    try:
        if metadata.version("torch").endswith("+cpu"):
            return False
    except metadata.PackageNotFoundError:
        return False
    # Reading the file costs nothing; importing torch costs a second, and the pytest process may never need it.
    spec = find_spec("torch")
    version_file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    return bool(
        version_file
        and version_file.is_file()
        and re.search(r"^cuda\b[^=\n]*=\s*['\"]", version_file.read_text(), re.MULTILINE)
    )
