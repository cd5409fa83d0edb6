"""Corpora: sources and readers, the split into train and held-out, statistics; below, their curation."""
