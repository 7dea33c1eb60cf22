"""Constants that fit a deployed model: chosen on drift that is simulated from held-out labelled data alone."""
