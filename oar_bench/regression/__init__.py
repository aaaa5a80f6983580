"""The CI gate `oar-bench check`: a run against a baseline that is kept in the repository."""
