"""Text from the current policy: sampling, generation, rewards, and the rollouts that RL learns from."""
