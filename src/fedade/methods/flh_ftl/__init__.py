"""The method `flh-ftl` and what it alone uses."""
