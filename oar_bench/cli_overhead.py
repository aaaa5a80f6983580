"""The command `oar-bench overhead`: what a step of each method costs, phase by phase."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from oar_bench.errors import InputError
from oar_bench.stages import choice, split_words, this_command


def overhead(
    model: Annotated[
        str, typer.Argument(help="Checkpoint folder, or a recipe that makes its model (tiny).")
    ],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "grpo,oar-p,oar-g",
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Response lengths in tokens, answer included; default 64,128,256,512, or up to "
            "the context of a recipe's own model."
        ),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 16,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 4,
    prompts: Annotated[int, typer.Option(min=1, max=1024, help="Prompts a step.")] = 2,
    group_size: Annotated[int, typer.Option(min=2, max=1024, help="Responses to each prompt.")] = 4,
    repeats: Annotated[int, typer.Option(min=2, help="Timed steps of each.")] = 5,
    margin: Annotated[
        float, typer.Option(min=0, help="A step is negligibly dearer up to 1 + MARGIN x grpo's.")
    ] = 0.10,
    recipe: Annotated[
        str | None, typer.Option(help="Take the settings of this recipe; default: MODEL's own.")
    ] = None,
    memory_mib: Annotated[
        int | None, typer.Option(min=1, help="MiB for a pass of credit, instead of the recipe's.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="CPU threads, instead of the recipe's.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32 (default on CPU) or bfloat16 (on a GPU).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of tables and figure; default overhead/MODEL.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Measure a whole training step of each method.

    Phase by phase: seconds, operations, memory. Methods take turns in every repeat, so that a
    drifting machine doesn't decide. Writes overhead.md, overhead.csv, overhead.json and
    overhead.svg, and each repeat to overhead.jsonl once it is done: run it again to resume, or with
    more repeats.

    Examples:

      oar-bench overhead tiny --lengths 32,64,96

      oar-bench overhead CHECKPOINT --methods grpo,oar-p,oar-d,oar-g --lengths 64,128,256
    """
    from oar_bench.config import check_method

    names = split_words(methods, "--methods")
    for name in names:
        check_method(name, "--methods")
    choice(dtype, ("float32", "bfloat16"), "--dtype")
    if not Path(model).is_dir() and ("/" in model or model.startswith(".")):
        from oar_bench.engines.tokens import check_checkpoint

        if Path(model).suffix not in (".yaml", ".yml"):
            check_checkpoint(model)
    if lengths is None:
        sizes = _default_lengths(model, prompt_tokens)
    else:
        sizes = [_length(word) for word in split_words(lengths, "--lengths")]
    from oar_bench.console import Progress
    from oar_bench.reporting.overhead_run import Asked, run

    folder = out or Path("overhead") / Path(model).resolve().name
    asked = Asked(
        model, tuple(names), tuple(sizes), prompt_tokens, answer_tokens, prompts, group_size,
        repeats, margin, recipe, memory_mib, threads, dtype,
    )  # fmt: skip
    found = run(asked, folder, shlex.join(this_command()), Progress())
    if as_json:
        print(json.dumps(found, indent=2))
        return
    page = (folder / "overhead.md").read_text(encoding="utf-8")
    print(page.partition("## Verdict\n")[2].partition("\n## Phases")[0].strip())
    print(f"\n{folder / 'overhead.md'}")


def _default_lengths(model: str, prompt_tokens: int) -> list[int]:
    """64 to 512 tokens of a checkpoint; a recipe's own small model gets quarters of its room."""
    from oar_bench.config import load_recipe

    made = None if Path(model).is_dir() else load_recipe(model).model
    if made is None or made.path is not None:
        return [64, 128, 256, 512]
    room = max(4, made.max_context - prompt_tokens)
    return [room * quarter // 4 for quarter in (1, 2, 3, 4)]


def _length(word: str) -> int:
    if not word.isdecimal() or not int(word):
        raise InputError(f"{word!r} is no number of tokens", "--lengths", "write 64,128,256")
    return int(word)
