"""Objectives: what a batch's loss is. (model, batch) -> a sum over the tokens that count, and metrics."""
