"""The theorems' quantities as pure functions."""
