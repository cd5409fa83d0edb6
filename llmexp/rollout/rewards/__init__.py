"""Rewards: callables ``reward(record, completion) -> float`` on plain text, one file each."""
