"""Amortized estimation: train a network once on simulations, then estimate in one pass."""
