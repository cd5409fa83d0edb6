"""Stages: what each needs and makes, the pipeline graph, the runner that executes it. One file a stage."""
