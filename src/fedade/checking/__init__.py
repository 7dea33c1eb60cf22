"""What every method promises, as checks that the tests and `fedade check-method` share."""
