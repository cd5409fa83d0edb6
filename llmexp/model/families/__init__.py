"""Hugging Face model families: one module each, named like the config's ``model_type``."""
