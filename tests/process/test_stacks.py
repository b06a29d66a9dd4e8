from __future__ import annotations

from pytest_tensorizer.process.stacks import shorten

STACK = """\
said before
Fatal Python error: Aborted

Thread 0x1 (most recent call first):
  File "/usr/lib/threading.py", line 982 in run

Current thread 0x2 (most recent call first):
  File "/site-packages/_pytest/monkeypatch.py", line 3 in setattr
  File "/home/me/test_it.py", line 7 in test_hang
  File "/site-packages/_pytest/python.py", line 187 in pytest_pyfunc_call
  File "/site-packages/pluggy/_execution.py", line 147 in _multicall
  File "/elsewhere/pytest_tensorizer/process/child.py", line 97 in run_job
  File "<string>", line 5 in <module>

Extension modules: numpy, torch._C (total: 2)
"""


def test_the_foot_of_each_stack_is_one_line() -> None:
    assert shorten(STACK) == (
        "said before\n"
        "Fatal Python error: Aborted\n"
        "\n"
        "Thread 0x1 (most recent call first):\n"
        '  File "/usr/lib/threading.py", line 982 in run\n'
        "\n"
        "Current thread 0x2 (most recent call first):\n"
        '  File "/site-packages/_pytest/monkeypatch.py", line 3 in setattr\n'
        '  File "/home/me/test_it.py", line 7 in test_hang\n'
        "  … and 4 frames of pytest\n"
    )


def test_other_text_stays() -> None:
    for text in ["", "\n", "a", "a\n", "\n\n", '  File "/site-packages/_pytest/x.py", line 3 in y']:
        assert shorten(text) == text
