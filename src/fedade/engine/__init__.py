"""The clock: time, participation, labels and scoring. It knows no method."""
