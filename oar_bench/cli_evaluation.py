"""The commands `generate` and `evaluate`, whose many options are told once, in `job`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from oar_bench.engines.loaders import EngineChoice
from oar_bench.evaluation.asking import Asking
from oar_bench.stages import Job, run_generation, run_scoring

Model = Annotated[
    Path,
    typer.Argument(
        help="Folder of a Hugging Face checkpoint; for openai the model's name will do."
    ),
]
Tasks = Annotated[
    str, typer.Option("--tasks", "-t", help="Names of tasks or groups, separated by commas.")
]
Samples = Annotated[int, typer.Option("--samples", "-n", min=1, help="Responses to each problem.")]
Temperature = Annotated[float, typer.Option(min=0, help="Of sampling; 0 is greedy decoding.")]
TopP = Annotated[float, typer.Option("--top-p", min=0, max=1, help="Nucleus sampling; 1 is off.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
Limit = Annotated[int | None, typer.Option(min=1, help="The first so many problems only.")]
Tokens = Annotated[
    int | None,
    typer.Option("--max-new-tokens", min=1, help="Longest response in tokens; default the task's."),
]
Batch = Annotated[int, typer.Option("--batch-size", min=1, help="Sequences in one pass.")]
EngineName = Annotated[str, typer.Option("--engine", help="hf, vllm or openai (a server).")]
BaseUrl = Annotated[
    str | None, typer.Option(help="The server, such as http://127.0.0.1:8000/v1 (openai).")
]
ModelName = Annotated[str | None, typer.Option(help="The model's name on the server (openai).")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Requests at once (openai); default 32.")
]
EngineArg = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-arg",
        help="KEY=VALUE for the engine, such as tensor_parallel_size=2; repeat for more.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder of the results; default evaluations/MODEL.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the problems, as DIR/gsm8k/test.jsonl; default Hugging Face's hub."
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat-template", help="Ask through the tokenizer's chat template.")
]
System = Annotated[str | None, typer.Option(help="System prompt, with --chat-template.")]
Fewshot = Annotated[
    int | None, typer.Option(min=0, help="Worked examples before a problem; default the task's.")
]
ShardOf = Annotated[
    str | None,
    typer.Option("--shard", help="i/n, such as 0/8: one of n parts; `score` merges them."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show two prompts and the cost; generate nothing.")
]
Probe = Annotated[
    str | None,
    typer.Option(
        help="partial:0.6: show 60 % of each question and have it completed, to find contamination."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="SECTION.KEY=VALUE in the recipe, such as train.lr=1e-4; repeat for more."
    ),
]
AnswerType = Annotated[
    str | None,
    typer.Option(help="math, number, choice or exact; default: as the task or the rows say."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def job(
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
) -> Job:
    """The options that both commands have, as one value."""
    return Job(
        model, tasks, samples, temperature, top_p, seed, limit, max_new_tokens, batch_size, out,
        EngineChoice(engine, base_url, model_name, concurrency, tuple(engine_arg or ())),
        Asking(data_dir, chat_template, system, fewshot, dry_run=dry_run),
    )  # fmt: skip


def asked(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `Job`, with the options of `job` in its place.

    Typer reads a command's options from its signature, so the signature is put together here.
    """
    shared = inspect.signature(job, eval_str=True).parameters
    own = [*inspect.signature(command, eval_str=True).parameters.values()][1:]

    def run(**options: Any) -> None:
        command(job(**{name: options.pop(name) for name in shared}), **options)

    parameters = [*shared.values(), *own]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    return run


@asked
def generate(job: Job, shard: ShardOf = None) -> None:
    """Sample responses to a task's problems. Run it again to resume.

    Examples:

      oar-bench generate runs/tiny/grpo/seed-0/checkpoints/step-000030 --tasks oar_arithmetic -n 4

      oar-bench generate CHECKPOINT --tasks oar_math --data-dir DIR --dry-run

      oar-bench generate CHECKPOINT --tasks oar_math500 -n 4 --shard 0/8
    """
    asking = replace(job.asking, shard=shard)
    part = asking.part()
    for folder in run_generation(replace(job, asking=asking)):
        print(folder / (part.file if part else "samples.jsonl"))


@asked
def evaluate(job: Job, probe: Probe = None, as_json: AsJson = False) -> None:
    """Generate and score. Run it again to resume.

    Examples:

      oar-bench evaluate CHECKPOINT --tasks oar_arithmetic --samples 4

      oar-bench evaluate CHECKPOINT --tasks oar_arithmetic,oar_digits --temperature 0

      oar-bench evaluate CHECKPOINT --tasks oar_sum --engine vllm --samples 16

      oar-bench evaluate CHECKPOINT --tasks oar_sum --engine openai --base-url http://HOST:8000/v1

      oar-bench evaluate CHECKPOINT --tasks oar_math_chat --chat-template --data-dir DIR -n 4

      oar-bench evaluate CHECKPOINT --tasks oar_math500 --probe partial:0.6
    """
    asking = replace(job.asking, probe=probe, elsewhere=True)
    folders = run_generation(replace(job, asking=asking))
    if not job.asking.dry_run:
        run_scoring(folders, as_json)
