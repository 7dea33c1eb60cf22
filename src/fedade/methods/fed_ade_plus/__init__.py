"""The method `fed-ade-plus` and what it alone uses."""
