"""Running suites: cells in a folder, each whole, failed with its reason, or still to do."""
