"""Problems, and the registry of lm-eval tasks that asks them."""
