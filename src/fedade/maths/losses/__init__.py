"""Losses without labels, and labels that are made up."""
