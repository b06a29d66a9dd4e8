"""Prove that model weights survive the serializers, object stores, loaders and engines that handle them.

Importing this package costs nothing: it pulls in nothing. The parts are imported where they are used:

* :mod:`pytest_tensorizer.identity`: are two tensors, modules or outputs the same, bit for bit?
* :mod:`pytest_tensorizer.formats`, :mod:`~pytest_tensorizer.storage`, :mod:`~pytest_tensorizer.engines`: the subjects
* :mod:`pytest_tensorizer.prompt_embeds`: what clients send to a server, and how it must be normalized
* :mod:`pytest_tensorizer.process`: a clean process for a test or a function

(PYTEST_DONT_REWRITE: a clean process imports this package before pytest, which would warn that it came too late.)
"""

__version__ = "0.1.0"
