"""The run of the fixture ``trained``."""

TRAINED = [
    *(
        "stage=sft",
        "model=debug",
        "model.max_seq_len=256",
        "trainer=debug",
        "loader.seq_len=64",
        "tokenizer.vocab_size=300",
    ),
    *("curation=none", "collect.data=text_files", "collect.data.path=notes"),
    *("chats.data=chat_jsonl", "chats.data.path=chats.jsonl", "tracking=none"),
]
"""Overrides of a run that ends in seconds; paths are relative to the fixture's folder."""
