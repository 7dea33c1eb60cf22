"""Code for one CPU core, in C++, compiled on the machine that runs it."""
