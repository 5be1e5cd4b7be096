"""The version, where everyone can read it."""

__version__ = "0.1.0"
