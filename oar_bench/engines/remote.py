"""Talking to a server over HTTP: many requests at once, tried again after passing faults.

What can pass (no connection, time-outs, 408, 409, 425, 429, 5xx, replies that are no JSON) is tried
again after a wait that doubles each time, drawn at random up to that length so that many clients
don't come back together, and never shorter than the server's Retry-After. What can't pass is an
InputError of one line. Nothing that was answered is lost to a failure: see `as_ready`.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from oar_bench.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

KEY_VARIABLE = "OPENAI_API_KEY"
PASSING = {408, 409, 425, 429}  # and 5xx
LONGEST_RETRY_AFTER = 600.0


@dataclass(frozen=True)
class Policy:
    """How patient and how pushing the client is; times in seconds."""

    concurrency: int = 32
    timeout: float = 1800.0
    retries: int = 8
    first_wait: float = 1.0
    longest_wait: float = 60.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InputError(f"{self.concurrency} is no concurrency", "--concurrency", "use 1")
        if not self.timeout > 0 or self.retries < 0:
            raise InputError("time-outs are above 0 and retries 0 or more", "--engine-arg")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Seconds before try number `attempt` + 1 (from 1 on).

        >>> 0 < Policy().wait(3, None) <= 4.0
        True
        >>> Policy().wait(1, 30.0) >= 30.0
        True
        """
        ceiling = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        drawn = ceiling * (0.5 + 0.5 * random.random())
        return drawn if retry_after is None else retry_after + 0.1 * drawn


class PassingError(Exception):
    """A fault that may be gone the next time."""

    def __init__(self, line: str, retry_after: float | None = None) -> None:
        super().__init__(line)
        self.retry_after = retry_after


class Session:
    """One server, one key, one pool of connections; made by `connect`."""

    def __init__(self, client: httpx2.AsyncClient, base_url: str, policy: Policy) -> None:
        self.client, self.base_url, self.policy = client, base_url, policy
        self.draining = asyncio.Event()
        """Set once a request has failed for good: the others are not tried again."""

    async def post(
        self, path: str, body: Mapping[str, Any], read: Callable[[dict[str, Any]], Result]
    ) -> Result:
        """What `read` makes of the reply to a POST.

        Args:
            path: below the base URL, for example `completions`.
            body: sent as JSON.
            read: takes the reply's object; KeyError, TypeError and ValueError mean that the reply
                isn't what it should be, and the request is tried again.

        Raises:
            InputError: the server refuses it for good, or still fails after the last try.
        """
        attempt = 1
        while True:
            try:
                return read(await self._once(path, body))
            except PassingError as error:
                fault, retry_after = str(error), error.retry_after
            except (KeyError, TypeError, ValueError) as error:
                fault, retry_after = f"its reply can't be read ({_line(repr(error))})", None
            last = attempt > self.policy.retries
            if last or await self._drained(self.policy.wait(attempt, retry_after)):
                raise InputError(
                    f"the server still fails after {attempt} tries ({fault})", self.base_url,
                    "finished rows are kept; run the same command again to go on",
                )  # fmt: skip
            attempt += 1

    async def _drained(self, seconds: float) -> bool:
        """Wait, unless another request has failed for good, or does so meanwhile."""
        try:
            await asyncio.wait_for(self.draining.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _once(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = await self.client.post(f"{self.base_url}/{path}", json=body)
        except httpx2.TimeoutException as error:
            raise PassingError(f"no reply within {self.policy.timeout:g} s") from error
        except httpx2.RequestError as error:
            raise PassingError(_line(str(error)) or type(error).__name__) from error
        if response.status_code != 200:
            raise refusal(response, self.base_url)
        found = response.json()
        if not isinstance(found, dict):
            raise PassingError("its reply is no JSON object")
        return found


def refusal(response: httpx2.Response, base_url: str) -> Exception:
    """The error that a reply other than 200 stands for: a PassingError or an InputError."""
    status, said, code = response.status_code, _line(response.text), ""
    try:
        body = response.json()
        error = body.get("error", body) if isinstance(body, dict) else {}
        if isinstance(error, dict):
            said = _line(str(error.get("message") or error.get("detail") or said))
            code = str(error.get("code"))
        elif isinstance(error, str):
            said = _line(error)
    except ValueError:
        pass
    line = f"HTTP {status}{f': {said}' if said else ''}"
    if code == "insufficient_quota":
        return InputError(line, base_url, "the account's quota is used up")
    if status in PASSING or status >= 500:
        return PassingError(line, _retry_after(response.headers.get("retry-after")))
    mends = {
        401: f"set the environment variable {KEY_VARIABLE} to a key of this server",
        403: f"set {KEY_VARIABLE} to a key that may use this model",
        404: "check the address (most end in /v1) and the model's name (--model-name)",
    }
    return InputError(line, base_url, mends.get(status, "the request itself is refused"))


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date.

    >>> _retry_after("2"), _retry_after("soon"), _retry_after(None)
    (2.0, None, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER) if seconds == seconds else None


def _line(text: str) -> str:
    """A server's words as one short line without control characters or our key."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    text = " ".join(text[:2000].split())
    if key:
        text = text.replace(key, "[key]")
    return "".join(letter for letter in text if letter.isprintable())[:300]


def headers() -> dict[str, str]:
    """The key from the environment, where there is one; it is never printed or written."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError("it holds characters that no key has", KEY_VARIABLE, "set it anew")
    return {"Authorization": f"Bearer {key}"} if key else {}


def fetch(base_url: str, path: str, timeout: float = 10.0) -> dict[str, Any] | None:
    """The object at a path of a server, or None where the server has no such page.

    Raises:
        InputError: the server can't be reached, or refuses the key.
    """
    try:
        response = httpx2.get(f"{base_url}/{path}", headers=headers(), timeout=timeout)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise InputError(
            "not an address of a server", base_url, "give one such as http://127.0.0.1:8000/v1"
        ) from error
    except httpx2.RequestError as error:
        raise InputError(
            f"the server can't be reached ({_line(str(error)) or type(error).__name__})", base_url,
            "start it, or check its address",
        ) from error  # fmt: skip
    if response.status_code in (401, 403):
        raise refusal(response, base_url)
    try:
        found = response.json() if response.status_code == 200 else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else None


@asynccontextmanager
async def connect(base_url: str, policy: Policy) -> AsyncIterator[Session]:
    """A session with a server."""
    limits = httpx2.Limits(
        max_connections=policy.concurrency, max_keepalive_connections=policy.concurrency
    )
    timeout = httpx2.Timeout(policy.timeout, connect=min(30.0, policy.timeout))
    async with httpx2.AsyncClient(limits=limits, timeout=timeout, headers=headers()) as client:
        yield Session(client, base_url, policy)


def as_ready(
    jobs: Iterable[Job],
    work: Callable[[Session, Job], Awaitable[Result]],
    base_url: str,
    policy: Policy,
) -> Generator[Result]:
    """Results of jobs as they become ready, `policy.concurrency` of them at once.

    When one fails for good no more are begun; those under way are still given out, and then the
    error is raised. When the caller stops listening the requests under way are cancelled. The
    requests run in a thread of their own, so that they go on while the caller writes.
    """
    ready: queue.SimpleQueue[list[Result] | None] = queue.SimpleQueue()

    async def main() -> None:
        running: set[asyncio.Task[Result]] = set()
        failure: BaseException | None = None
        waiting = iter(jobs)
        try:
            async with connect(base_url, policy) as session:
                while True:
                    while failure is None and len(running) < policy.concurrency:
                        try:
                            job = next(waiting)
                        except StopIteration:
                            break
                        running.add(asyncio.ensure_future(work(session, job)))
                    if not running:
                        break
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        if (error := task.exception()) is None:
                            ready.put([task.result()])
                        elif failure is None:
                            failure = error
                            session.draining.set()
                if failure is not None:
                    raise failure
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            ready.put(None)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="oar-bench requests", daemon=True)
    thread.start()
    future = asyncio.run_coroutine_threadsafe(main(), loop)
    ended = False
    try:
        while (results := ready.get()) is not None:
            yield from results
        ended = True
        future.result()
    finally:
        if not ended:
            future.cancel()
            while ready.get() is not None:
                pass
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
