"""fedade: adapt deployed models on many drifting clients, without labels."""

__version__ = "0.1.0"
