"""Deploy a trained model, let it adapt to its stream, and tell how it is doing."""
