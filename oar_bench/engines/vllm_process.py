"""vLLM's processes: started quietly, never outliving ours, and missed as soon as one dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

from oar_bench.errors import InputError

PR_SET_PDEATHSIG = 1


class Companion:
    """Mixed into vLLM's worker (`worker_extension_cls`); its methods are called by name."""

    def oar_settle(self) -> int:
        """Tie the process to the one that started it, and return its number.

        It ends when its parent is killed, which vLLM's own clean-up can't see to. And it leaves
        the terminal's foreground, so that Ctrl-C reaches the parent alone, which may have a step
        to finish, and ends it in its own time.
        """
        try:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        except (OSError, AttributeError):
            pass  # leads a session already, or not Linux: vLLM's own clean-up has to do
        return os.getpid()


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


@contextmanager
def alive() -> Iterator[None]:
    """InputError when vLLM's processes have died, of memory for instance."""
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError as error:
        raise InputError(
            "vLLM's engine died", "engine vllm",
            "what is finished is kept: run the same command again (train: with --resume) to go on",
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
