"""The datasets known by name, one module for each publication."""
