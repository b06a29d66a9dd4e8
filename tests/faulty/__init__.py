"""Deliberately broken subjects, one fault each. The suite must catch every one by the check that is named for it."""
