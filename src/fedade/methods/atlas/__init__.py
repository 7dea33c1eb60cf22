"""The method `atlas` and what it alone uses."""
