"""Sweeps: what ``-m`` does."""
