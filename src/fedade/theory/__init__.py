"""What the paper's theory says of finished runs."""
