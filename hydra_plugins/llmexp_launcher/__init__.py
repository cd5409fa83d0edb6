"""Hydra's launcher for ``-m``: one process a job."""
