"""Tokenizers: training, import from other tools, one folder format, chat templates, the fast engine."""
