"""The same methods on Flower: real clients over a real network. Everything that imports Flower is in this package. The
command line imports only those of its modules that do not."""
