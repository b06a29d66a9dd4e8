"""Property-based search for examples that break a rule: in processes that may crash, hang or run out of memory.

`properties` has the rules, as functions that a test can call; `Worker` tries one example at a time; `Search` draws
them, sorts out what is known, and has Hypothesis make each new failure as small as can be.
"""
