"""The method `fed-ccfa` and what it alone uses."""
