"""Any trained classifier on any stream: from a module and held-out data to predictions that keep up."""
