"""Claims and their verdicts: what is claimed (`spec`), what was measured (`evidence`), what each
test makes of it (`testing`), and what may be said of all together (`judge`).

Pure functions on arrays: nothing here reads runs or writes pages, `reporting.claims_*` does.
"""
