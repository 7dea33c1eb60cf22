"""Experiments: what is run, as a validated object; presets; and running them into a folder."""
