"""What methods cost: seconds, tokens and memory of each phase."""
