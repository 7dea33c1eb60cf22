"""The method `rogd` and what it alone uses."""
