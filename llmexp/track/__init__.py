"""Tracking: the run folder's journal is the truth; a process of its own delivers it to MLflow or wandb."""
