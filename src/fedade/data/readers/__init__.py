"""One reader per way in which datasets lie on disk."""
