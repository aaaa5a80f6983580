"""The commands `oar-bench credit ...`: what token weights a model's responses get, and why."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="credit",
    help="Token importances and weights of responses.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def top() -> None:
    """Token importances and weights of responses."""
