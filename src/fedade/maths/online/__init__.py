"""Learning while time passes: experts, step sizes, histories."""
