"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Steps = Annotated[int | None, typer.Option(min=1, help="Training steps, instead of the recipe's.")]
Model = Annotated[
    Path, typer.Argument(help="Folder of a Hugging Face checkpoint; openai: or the model's name.")
]
Tasks = Annotated[str, typer.Option("--tasks", "-t", help="Task names, separated by commas.")]
Samples = Annotated[int, typer.Option("--samples", "-n", min=1, help="Responses to each problem.")]
Temperature = Annotated[float, typer.Option(min=0, help="0 is greedy decoding.")]
TopP = Annotated[float, typer.Option("--top-p", min=0, max=1, help="Nucleus sampling; 1 is off.")]
Limit = Annotated[int | None, typer.Option(min=1, help="The first so many problems only.")]
Tokens = Annotated[
    int | None, typer.Option("--max-new-tokens", min=1, help="Instead of the task's own limit.")
]
Batch = Annotated[int, typer.Option("--batch-size", min=1, help="Sequences in one pass.")]
EngineName = Annotated[str, typer.Option("--engine", help="hf, vllm or openai (a server).")]
BaseUrl = Annotated[
    str | None, typer.Option(help="The server, such as http://127.0.0.1:8000/v1 (openai).")
]
ModelName = Annotated[str | None, typer.Option(help="The model's name on the server (openai).")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests at once (openai); 32.")]
EngineArg = Annotated[
    list[str] | None,
    typer.Option("--engine-arg", help="KEY=VALUE for the engine, such as tensor_parallel_size=2."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampling keys.")]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", help="A field that may differ; repeat for more.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
