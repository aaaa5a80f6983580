"""Training: rollouts, advantages, losses, checkpoints and the loop that joins them."""
