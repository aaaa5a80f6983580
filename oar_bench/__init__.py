"""oar-bench: reproduce, test and extend credit assignment in RL for math reasoning."""

__version__ = "0.1.0"
