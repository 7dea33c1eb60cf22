"""The method `uda` and what it alone uses."""
