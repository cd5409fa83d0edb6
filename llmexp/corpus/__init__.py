"""Corpora: sources and readers, the split into train and held-out, curation, what was removed and why."""
