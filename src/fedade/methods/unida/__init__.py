"""The method `unida` and what it alone uses."""
