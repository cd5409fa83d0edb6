"""Curation: an ordered list of steps that clean, mask or remove records, and what was removed and why."""
