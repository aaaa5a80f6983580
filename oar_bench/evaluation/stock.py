"""Tasks of lm-eval by name.

One that asks for text and is right or wrong runs through our runner: its prompts from lm-eval, n
samples with a seed each, resume, statistics; its verdicts by lm-eval's own filter and metric.
Any other goes through `lm_eval.simple_evaluate` as a whole and lands in the same results.json.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oar_bench.answers.grades import Grade, Status
from oar_bench.errors import InputError
from oar_bench.evaluation.asking import Asking
from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint, versions
from oar_bench.records import SCHEMA, dumps, read_json, write_json, write_text
from oar_bench.tasks.catalog import is_stock, stock_config, stock_manager
from oar_bench.tasks.registry import task_object

RIGHT_OR_WRONG = ("exact_match", "acc", "em")
"""Metrics that are 0 or 1 for a response; a task's first one must be of these to run through us."""

Row = Mapping[str, Any]

INVALID = "[invalid]"  # what lm-eval's regex filters give where nothing matches


def needs_lm_eval(name: str) -> bool:
    """Whether a checked name is a task that only lm-eval itself can run."""
    if not is_stock(name):
        return False
    config = stock_config(name)
    metrics = config.get("metric_list") or [{}]
    asks_text = config.get("output_type", "generate_until") == "generate_until"
    return not (asks_text and metrics[0].get("metric") in RIGHT_OR_WRONG)


class StockJudge:
    """Verdicts by the first filter and the first metric of a task of lm-eval.

    The task's documents are loaded for it.
    """

    def __init__(self, name: str) -> None:
        self.task = task_object(name)
        self.documents = list(self.task.eval_docs)
        self.name = name
        self.metric = next(iter(self.task._metric_fn_list))
        self.filter = self.task._filters[0].name

    @property
    def fingerprint(self) -> str:
        """Names lm-eval's version, the filter and the metric."""
        return fingerprint(["lm-eval", versions()["lm-eval"], self.name, self.filter, self.metric])

    def grade(self, sample: Mapping[str, Any]) -> Grade:
        """The verdict on a row of samples.jsonl."""
        from lm_eval.api.instance import Instance

        start = time.perf_counter()
        number = int(str(sample["problem"]).rpartition("-")[2])
        document = self.documents[number]
        instance = Instance(
            request_type="generate_until", doc=document, arguments=("", {}), idx=0,
            metadata=(self.name, number, 1), resps=[sample["response"]],
        )  # fmt: skip
        self.task._filters[0].apply([instance])
        filtered = instance.filtered_resps[self.filter]
        values = self.task.process_results(document, [filtered])
        value = float(values[self.metric])
        if value not in (0.0, 1.0):
            raise InputError(
                f"its metric {self.metric} gave {value:g}, neither right nor wrong",
                f"task {self.name}", "run it by `lm-eval run`",
            )  # fmt: skip
        status: Status = "correct" if value else "no_answer" if filtered == INVALID else "wrong"
        milliseconds = (time.perf_counter() - start) * 1000
        return Grade(status, str(filtered), self.filter, "lm-eval", milliseconds, ())


def evaluate_by_lm_eval(
    name: str, model: Path, folder: Path, *, limit: int | None, batch_size: int, asking: Asking
) -> None:
    """Run a task through lm-eval on transformers; its results.json lies in `folder`.

    Nothing is done when the folder holds the results already.

    Raises:
        InputError: the task's data can't be had, or an option is of our own runner.
    """
    settings = {
        "limit": limit, "fewshot": asking.fewshot, "chat_template": asking.chat_template,
        "system": asking.system,
    }  # fmt: skip
    prints = {
        "task": fingerprint(["lm-eval", versions()["lm-eval"], name]),
        "model": fingerprint_checkpoint(model),
    }
    if (folder / "results.json").is_file():
        before = read_json(folder / "results.json")
        same = [before.get("fingerprints", {}).get(key) == value for key, value in prints.items()]
        if before.get("settings") != settings or not all(same):
            raise InputError(
                "this folder holds another evaluation", str(folder), "choose another --out"
            )
        return
    import lm_eval
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found: Any = lm_eval.simple_evaluate(
            model="hf", model_args={"pretrained": str(model)}, tasks=[name],
            num_fewshot=asking.fewshot, batch_size=batch_size, limit=limit,
            system_instruction=asking.system, apply_chat_template=asking.chat_template,
            fewshot_as_multiturn=asking.chat_template, task_manager=stock_manager(),
            bootstrap_iters=0, device=device,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(f"lm-eval can't run it ({line})", f"task {name}") from error
    results = found["results"][name]
    rows = of_first_filter(results, found["samples"][name])
    prints["data"] = fingerprint([row["doc_hash"] for row in rows])
    prints["prompt"] = fingerprint([row["prompt_hash"] for row in rows])
    prints["grader"] = fingerprint(["lm-eval", versions()["lm-eval"], name, *first_metric(results)])
    common = {
        "schema": SCHEMA, "task": name, "model": str(model), "engine": "lm-eval",
        "fingerprints": prints, "environment": environment(),
    }  # fmt: skip
    write_json(folder / "generation.json", {**common, "kind": "generation", "grading": {}})
    verdicts = verdicts_of(results, rows)
    if verdicts is not None:
        _write_verdicts(folder, name, rows, verdicts, prints)
    write_json(
        folder / "results.json",
        {
            **common,
            "kind": "evaluation",
            "complete": True,
            "metrics": lm_eval_metrics(results, rows),
            "settings": settings,
        },
    )


def _write_verdicts(
    folder: Path, name: str, rows: Sequence[Row], verdicts: Sequence[bool],
    prints: Mapping[str, str],
) -> None:  # fmt: skip
    """problems.jsonl and scores.jsonl: what `compare` pairs problem by problem."""
    problems, scores = [], []
    for row, correct in zip(rows, verdicts, strict=True):
        problem = f"{name}-{row['doc_id']}"
        hashes = {key: row[key] for key in ("doc_hash", "prompt_hash", "target_hash")}
        problems.append({"schema": SCHEMA, "problem": problem, **hashes})
        scores.append(
            {"schema": SCHEMA, "task": name, "problem": problem, "sample": 0,
             "status": "correct" if correct else "wrong", "correct": correct, "stage": "lm-eval",
             "grader": prints["grader"], "model": prints["model"]}
        )  # fmt: skip
    for file, content in (("problems.jsonl", problems), ("scores.jsonl", scores)):
        write_text(folder / file, "".join(dumps(row) + "\n" for row in content))


def first_metric(results: Row) -> tuple[str, str]:
    """Name and filter of the first metric that is right or wrong for a document, else the first.

    >>> first_metric({"alias": "x", "perplexity,none": 8.1, "acc,none": 0.5})
    ('acc', 'none')
    """
    keys = [*_numbers(results)]
    judging = [key for key in keys if key.partition(",")[0] in RIGHT_OR_WRONG]
    name, _, kind = next(iter([*judging, *keys]), "").partition(",")
    return name, kind


def of_first_filter(results: Row, rows: Sequence[Row]) -> list[Row]:
    """One row for each document: lm-eval gives one for each filter of the task."""
    kind = first_metric(results)[1]
    return [row for row in rows if row.get("filter", kind) == kind]


def verdicts_of(results: Row, rows: Sequence[Row]) -> list[bool] | None:
    """Right or wrong by `first_metric` for each document; None where it says another thing.

    >>> verdicts_of({"acc,none": 0.5}, [{"acc": 1.0}, {"acc": 0.0}])
    [True, False]
    >>> verdicts_of({"f1,none": 0.4}, [{"f1": 0.4}]) is None
    True
    """
    values = [row.get(first_metric(results)[0]) for row in rows]
    known = all(isinstance(v, bool | int | float) and v in (0, 1) for v in values)
    return [bool(v) for v in values] if known and values else None


def _numbers(results: Row) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in results.items()
        if "," in key and "_stderr" not in key and isinstance(value, int | float)
    }


def lm_eval_metrics(results: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """lm-eval's numbers in our schema: `avg@k` from `first_metric` where it is a share.

    >>> rows = [{"acc": 1.0}, {"acc": 0.0}]
    >>> found = lm_eval_metrics({"acc,none": 0.5, "acc_stderr,none": "N/A", "alias": "x"}, rows)
    >>> found["n_problems"], found["avg@k"]["value"], found["lm_eval"]
    (2, 0.5, {'acc,none': 0.5})
    """
    from oar_bench.evaluation.intervals import share_interval
    from oar_bench.evaluation.summary import to_json

    numbers, first = _numbers(results), first_metric(results)[0]
    values = [row.get(first) for row in rows]
    share = all(isinstance(v, int | float) and 0 <= v <= 1 for v in values) and bool(values)
    verdicts = verdicts_of(results, rows)
    metrics: dict[str, Any] = {"n_problems": len(rows), "n_samples": len(rows), "k": 1}
    metrics["avg@k"] = to_json(share_interval([float(v or 0) for v in values])) if share else None
    # what lm-eval's rows can't tell is null
    for key in ("run_sd", "truncated", "no_answer", "response_tokens", "equal_completions"):
        metrics[key] = None
    words = ("correct" if verdict else "wrong" for verdict in verdicts or ())
    metrics["statuses"] = dict(Counter(words))
    return {**metrics, "lm_eval": numbers}
