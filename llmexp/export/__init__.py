"""Models in the formats of other tools, with their tokenizer and a model card."""
