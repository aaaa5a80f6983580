"""From a model and a task to numbers that can be trusted: generate, score, metrics, statistics."""
