"""Corpora: sources and their readers, the split into train and held-out, curation steps, what was removed and why."""
