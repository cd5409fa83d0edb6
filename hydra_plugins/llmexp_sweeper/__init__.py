"""Hydra's sweeper for ``-m``."""
