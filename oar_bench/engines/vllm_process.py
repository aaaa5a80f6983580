"""vLLM's processes: started quietly, never outliving ours, and missed as soon as one dies."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from typing import Any

import psutil

from oar_bench.errors import AGAIN, InputError

COMPANION = f"{__name__}.Companion"


class Companion:
    """Mixed into vLLM's worker (`worker_extension_cls`); its methods are called by name."""

    def oar_settle(self, owner: int) -> None:
        """End with the process `owner`, however that ends: a kill leaves vLLM no clean-up."""
        engine = os.getppid()

        def follow() -> None:
            wait_for(owner)
            if engine not in (owner, 1) and os.getppid() == engine:
                os.kill(engine, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=follow, name="oar-bench owner watch", daemon=True).start()

    def oar_sees(self, folder: str) -> bool:
        """Whether this worker can read the weights in a folder."""
        return os.access(os.path.join(folder, "model.safetensors"), os.R_OK)

    def oar_reload(self: Any, weights_path: str | None = None) -> None:
        """Read the weights anew, from another folder if one is given.

        vLLM's CPU build multiplies with packed copies of matrices. Its own reloading renews them
        but for an output layer that is tied to the embedding, which would go on with the old one.
        """
        self.reload_weights(**({} if weights_path is None else {"weights_path": weights_path}))
        for layer in self.model_runner.get_model().modules():
            if hasattr(layer, "cpu_linear") and layer.weight.numel():
                layer.quant_method.process_weights_after_loading(layer)


def wait_for(process: int) -> None:
    """Return when a process has ended."""
    try:
        connection.wait([os.pidfd_open(process)])
    except (AttributeError, OSError):  # not Linux, or ended already
        while psutil.pid_exists(process):
            time.sleep(1)


@contextmanager
def shielded() -> Iterator[None]:
    """Processes begun inside don't get Ctrl-C.

    It then reaches this process alone, which may have a step to finish, and ends them in its own
    time. Ctrl-C during the block counts after it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # multiprocessing begins it before the first process, and would unblock the signal in doing so.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def installed() -> Any:
    """vLLM's module, told to be quiet; InputError where there is none."""
    quiet()
    try:
        import vllm
        from vllm import LLM  # noqa: F401  imported only when it is asked for
    except ImportError as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(
            f"vLLM can't be imported ({line})", "engine vllm",
            "install it with `python -m pip install 'oar-bench[vllm]'`",
        ) from error  # fmt: skip
    return vllm


def quiet() -> None:
    """Have vLLM log errors only, to standard error, unless the user's environment says otherwise.

    It does nothing once vLLM is imported.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Python's own note on shared memory that vLLM leaves to be cleaned up, by a helper process.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")


@contextmanager
def alive() -> Iterator[None]:
    """InputError when vLLM's processes have died, of memory for instance."""
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError as error:
        raise InputError(
            "vLLM's engine died", "engine vllm",
            f"what is finished is kept: {AGAIN}",
        ) from error  # fmt: skip


def watch(core: Any) -> None:
    """Tell whoever waits for vLLM's process that it has died: vLLM's own client waits for ever."""
    from vllm.v1.engine.exceptions import EngineDeadError

    manager = getattr(getattr(core, "resources", None), "engine_manager", None)
    if manager is None or not hasattr(manager, "sentinels"):
        return  # in this very process, or on Ray
    resources, waiting, outputs = core.resources, core.utility_results, core.outputs_queue
    sentinels = manager.sentinels()

    def wait() -> None:
        connection.wait(sentinels)
        outputs.put(EngineDeadError())
        while True:
            known = resources.engine_dead  # from then on vLLM refuses calls by itself
            for call in list(waiting.values()):
                if not call.done():
                    call.set_exception(EngineDeadError())
            if known:
                return
            time.sleep(0.1)

    threading.Thread(target=wait, name="oar-bench vLLM watch", daemon=True).start()


def exit_on_terminate() -> None:
    """Turn SIGTERM into an exit that cleans up: else vLLM's processes would run on without us."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
