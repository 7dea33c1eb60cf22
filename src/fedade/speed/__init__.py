"""What `fedade speed` measures: our simulator against a plain sequential loop, on the same work."""
