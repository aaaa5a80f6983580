"""A report's tables as its tests read them."""

import pandas as pd


def cells(markdown, heading, first):
    """The cells of the row that begins with `first`, in the table under `heading`."""
    table = markdown.partition(heading)[2].lstrip("\n").partition("\n\n")[0]
    for line in table.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if row[0] == first:
            return row
    raise AssertionError(f"{first} is not under {heading}")


def sheet(paths, name):
    """The CSV table of that name."""
    return pd.read_csv(next(path for path in paths.tables if path.stem == name))
