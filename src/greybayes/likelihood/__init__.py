"""Likelihoods: how probable a record is, for a given theta."""
