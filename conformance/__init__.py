"""The conformance suite: test modules, one for each area, and `known_issues.toml`.

Each test is one check. Its marker has the id, the level and the kind of subject; its docstring says the rule.
Run with `pytest --tensorizer-conformance`.
"""
