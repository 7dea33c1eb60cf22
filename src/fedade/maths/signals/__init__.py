"""How far two batches are apart, and what learning rate follows."""
