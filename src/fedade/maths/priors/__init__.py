"""Class distributions: estimated from predictions, used to reweight them."""
