"""The page of `oar-bench credit show`: one static file that loads nothing and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from oar_bench.reporting.credit_view import credit_view
from oar_bench.reporting.render import document

GENERATOR = '<meta name="generator" content="oar-bench credit show">'
"""By which a page of ours is known again, so that nothing else is overwritten."""


def credit_page(found: Mapping[str, Any], command: str) -> str:
    """The page as HTML.

    Args:
        found: what `oar_bench.reporting.credit_show.show` returned.
        command: the command line that made it.

    Raises InputError when the lists in `found` don't fit each other.
    """
    templates = files("oar_bench.reporting") / "templates"
    css = "\n".join(
        (templates / name).read_text(encoding="utf-8") for name in ("report.css", "credit.css")
    )
    view = {
        "view": credit_view(found),
        "found": found,
        "command": command,
        "fingerprints": _pairs(found.get("fingerprints")),
        "settings": [
            *_pairs(found.get("settings")),
            ("answer_type", found.get("answer_type")),
            ("extract", found.get("extract")),
        ],
        "environment": _pairs(found.get("environment")),
        "notes": found.get("notes") or [],
    }
    return document("credit.html.j2", view, css)


def _pairs(section: Any) -> list[tuple[str, str]]:
    """Keys and values of a section as text."""
    if not isinstance(section, Mapping):
        return []
    return [(k, v if isinstance(v, str) else json.dumps(v)) for k, v in section.items()]
