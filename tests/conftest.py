"""What all tests share: pytester, and no way to a model hub."""

from __future__ import annotations

import os

pytest_plugins = ["pytester"]

os.environ["HF_HUB_OFFLINE"] = "1"
