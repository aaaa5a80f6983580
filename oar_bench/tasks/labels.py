"""What data say of a problem's kind, besides the problem itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABELS = ("level", "subject")
"""What a document may say of its problem's kind."""


def labels_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The labels that a document has, as text.

    >>> labels_of({"problem": "1+1", "level": 5, "subject": "Algebra"})
    {'level': '5', 'subject': 'Algebra'}
    >>> labels_of({"level": None, "subject": ""})
    {}
    """
    found = {name: document.get(name) for name in LABELS}
    return {name: str(value) for name, value in found.items() if isinstance(value, str | int)
            and str(value)}  # fmt: skip
