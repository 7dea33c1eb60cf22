"""The method `cotta` and what it alone uses."""
