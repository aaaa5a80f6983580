"""Two processes on CPUs, as a user would start them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FLAGS = {"ddp": ["--multi_gpu"], "fsdp2": ["--use_fsdp", "--fsdp_version", "2"]}
WORKER, DYING = (str(Path(__file__).parent / name) for name in ("worker.py", "dying.py"))


def launch(
    *arguments: str, kind: str = "ddp", processes: int = 2
) -> subprocess.CompletedProcess[str]:
    """`accelerate launch` of a script or `-m MODULE` with its arguments."""
    command = [
        sys.executable, "-m", "accelerate.commands.launch", *FLAGS[kind],
        "--num_processes", str(processes), "--num_machines", "1", "--main_process_port", "0",
        "--mixed_precision", "no", "--dynamo_backend", "no", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300)
