"""Training: one loop for every objective, its optimizers, schedules, checkpoints and bad-loss policy."""
