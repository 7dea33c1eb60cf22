"""Corruptions of colour images: those of CIFAR-10-C and CIFAR-100-C, generated from clean images."""
