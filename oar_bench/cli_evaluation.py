"""The commands `generate` and `evaluate`, whose many options they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oar_bench.engines.loaders import EngineChoice
from oar_bench.evaluation.asking import Asking
from oar_bench.stages import run_generation, run_scoring

Model = Annotated[
    Path, typer.Argument(help="Folder of a Hugging Face checkpoint; openai: or the model's name.")
]
Tasks = Annotated[
    str, typer.Option("--tasks", "-t", help="Names of tasks or groups, separated by commas.")
]
Samples = Annotated[int, typer.Option("--samples", "-n", min=1, help="Responses to each problem.")]
Temperature = Annotated[float, typer.Option(min=0, help="0 is greedy decoding.")]
TopP = Annotated[float, typer.Option("--top-p", min=0, max=1, help="Nucleus sampling; 1 is off.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampling keys.")]
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
Out = Annotated[Path | None, typer.Option(help="Folder of the evaluation.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the problems, DIR/gsm8k/test.jsonl; else the hub."),
]
Chat = Annotated[
    bool, typer.Option("--chat-template", help="Ask through the tokenizer's chat template.")
]
System = Annotated[str | None, typer.Option(help="System prompt, with --chat-template.")]
Fewshot = Annotated[int | None, typer.Option(min=0, help="Worked examples before a problem.")]
ShardOf = Annotated[
    str | None, typer.Option("--shard", help="i/n: the problems i modulo n; `score` merges.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show two prompts and the cost; generate nothing.")
]
Probe = Annotated[
    str | None,
    typer.Option(help="partial:0.6: have the questions completed instead (contamination)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def generate(
    model: Model,
    tasks: Tasks,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    limit: Limit = None,
    max_new_tokens: Tokens = None,
    batch_size: Batch = 256,
    out: Out = None,
    engine: EngineName = "hf",
    base_url: BaseUrl = None,
    model_name: ModelName = None,
    concurrency: Concurrency = None,
    engine_arg: EngineArg = None,
    data_dir: DataDir = None,
    chat_template: Chat = False,
    system: System = None,
    fewshot: Fewshot = None,
    shard: ShardOf = None,
    dry_run: DryRun = False,
) -> None:
    """Sample responses to a task's problems. Run it again to resume.

    Examples:

      oar-bench generate runs/tiny/grpo/seed-0/checkpoints/step-000030 --tasks oar_arithmetic -n 4

      oar-bench generate CHECKPOINT --tasks oar_math --data-dir DIR --dry-run

      oar-bench generate CHECKPOINT --tasks oar_math500 -n 4 --shard 0/8
    """
    chosen = EngineChoice(engine, base_url, model_name, concurrency, tuple(engine_arg or ()))
    asking = Asking(data_dir, chat_template, system, fewshot, shard, None, dry_run)
    for folder in run_generation(
        model, tasks, samples, temperature, top_p, seed, limit, max_new_tokens, batch_size, out,
        chosen, asking=asking,
    ):  # fmt: skip
        part = asking.part()
        print(folder / (part.file if part else "samples.jsonl"))


def evaluate(
    model: Model,
    tasks: Tasks,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    limit: Limit = None,
    max_new_tokens: Tokens = None,
    batch_size: Batch = 256,
    out: Out = None,
    engine: EngineName = "hf",
    base_url: BaseUrl = None,
    model_name: ModelName = None,
    concurrency: Concurrency = None,
    engine_arg: EngineArg = None,
    data_dir: DataDir = None,
    chat_template: Chat = False,
    system: System = None,
    fewshot: Fewshot = None,
    dry_run: DryRun = False,
    probe: Probe = None,
    as_json: AsJson = False,
) -> None:
    """Generate and score. Run it again to resume.

    Examples:

      oar-bench evaluate CHECKPOINT --tasks oar_arithmetic --samples 4

      oar-bench evaluate CHECKPOINT --tasks oar_arithmetic,oar_digits --temperature 0

      oar-bench evaluate CHECKPOINT --tasks oar_sum --engine vllm --samples 16

      oar-bench evaluate CHECKPOINT --tasks oar_sum --engine openai --base-url http://HOST:8000/v1

      oar-bench evaluate CHECKPOINT --tasks oar_math_chat --chat-template --data-dir DIR -n 4

      oar-bench evaluate CHECKPOINT --tasks oar_math500 --probe partial:0.6
    """
    chosen = EngineChoice(engine, base_url, model_name, concurrency, tuple(engine_arg or ()))
    asking = Asking(data_dir, chat_template, system, fewshot, None, probe, dry_run, elsewhere=True)
    folders = run_generation(
        model, tasks, samples, temperature, top_p, seed, limit, max_new_tokens, batch_size, out,
        chosen, asking=asking,
    )  # fmt: skip
    if not dry_run:
        run_scoring(folders, as_json)
