"""Artifacts: immutable, content-addressed folders, each built once, whole or not at all."""
