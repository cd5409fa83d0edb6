"""llmexp: the whole life of a language model from one declarative configuration."""
