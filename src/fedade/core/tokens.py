"""What data and models agree on about tokenised text."""

PADDING = -1
"""Fills the right of a text shorter than the dataset's length: no vocabulary has this token."""
