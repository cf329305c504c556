"""Locks and elections for Python, over `leasehold agent`. One file without dependencies: copy it. Python 3.8 or later.

    from leasehold import Agent, Elector, Held, Lost

    agent = Agent("http://localhost:7474")     # or "unix:/run/leasehold/agent.sock"
    with agent.lock("invoices") as hold:       # waits; with wait=30 at most 30 s, with wait=0 not at all: then Held
        for invoice in invoices:
            hold.check()                       # raises Lost if the lock is lost: stop within hold.grace seconds
            charge(invoice, hold.token)

    with agent.run("nightly", tick="2026-11-01T02:00:00Z") as run:   # without tick: once, for good
        if run:                                # else a run has succeeded before; run.value is its result
            run.value = backup()               # leaving the block without an exception is success

    elector = Elector(agent, "reports", on_leader=start, on_leader_loss=stop)
    elector.start()
"""
import http.client
import json
import socket
import threading
import time
import urllib.parse

_now = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Held(Exception):
    """Others hold the key. holder has their name, host, pid and since, if known."""
    holder = None


class Lost(Exception):
    """The hold is lost."""


class Agent:
    def __init__(self, url="http://localhost:7474", token=None):
        self._url, self._token = url, token

    def lock(self, key, wait=None, on_lost=None, **params):
        """A lock as a context manager. params: mode="shared" or "exclusive", of=5, n=2, limit="1m"."""
        return Hold(self, "locks", key, wait, on_lost, params)

    def run(self, key, tick=None, wait=None, on_lost=None, **params):
        """A run as a context manager, of a Periodic if there is a tick, else of a Once."""
        return Hold(self, *(("periodic", key, wait, on_lost, dict(params, tick=tick)) if tick else ("once", key, wait, on_lost, params)))

    def status(self, key):
        """Who holds the key (holders) and who waits for it (queue); held is whether anybody holds it."""
        return self.call("GET", "status", key)

    def leader(self, name):
        """The leader of an election with its name, host, term and value, or None."""
        return self.call("GET", "elections", name, "leader")["leader"]

    def call(self, method, *path, body=None, **params):
        """One request that does not stay open."""
        connection, answer = self.open(method, path, params, 30, body)
        try:
            return json.loads(answer.read() or "{}")
        finally:
            connection.close()

    def open(self, method, path, params, timeout, body=None):
        """Sends a request. Returns the connection and the response, or raises Held, Lost or another error."""
        if self._url.startswith("unix:"):
            connection = http.client.HTTPConnection("localhost", timeout=timeout)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(timeout)
            connection.sock.connect(self._url[len("unix:"):])
        else:
            connection = http.client.HTTPConnection(urllib.parse.urlsplit(self._url).netloc, timeout=timeout)
        url = "/v1/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        query = urllib.parse.urlencode({name: value for name, value in params.items() if value is not None})
        headers = {"Authorization": "Bearer " + self._token} if self._token else {}
        try:
            connection.request(method, url + ("?" + query if query else ""), body=body, headers=headers)
            connection.kept = connection.sock  # getresponse can leave it to the response
            answer = connection.getresponse()
            if answer.status in (200, 204):
                return connection, answer
            error = json.loads(answer.read())
            failure = {409: Held, 404: Lost, 410: Lost}.get(answer.status, RuntimeError)(error["error"])
            failure.holder = error.get("holder")
            raise failure
        except BaseException:
            connection.close()
            raise


class _Stream:
    """Reads the lines of a response. Each read takes at most as long as the last line lets the client rely on it."""

    def __init__(self, connection, answer):
        self._sock, self._connection, self._answer = connection.kept, connection, answer
        self.until = 0  # of the hold, by _now()

    def next(self):
        line = json.loads(self._answer.readline() or '{"lost": "the response has ended"}')
        if "left_ms" in line:
            self.until = _now() + line["left_ms"] / 1000
            self._sock.settimeout(line["left_ms"] / 1000 or 30)
        return line

    def close(self):
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        except OSError:
            pass
        self._connection.close()


class Hold:
    """One hold. lost is a threading.Event; token the fencing token; grace the seconds to stop after a loss."""

    def __init__(self, agent, kind, key, wait, on_lost, params):
        self._agent, self._path, self._on_lost, self.params = agent, (kind, key), on_lost, params
        self._wait, self.key, self.lost, self.cause, self.value = wait, key, threading.Event(), None, None
        self._stream, self._over = None, False

    def __enter__(self):
        params = dict(self.params) if self._wait is None else dict(self.params, wait="%.3fs" % self._wait)
        timeout = None if self._wait is None else self._wait + 30
        self._stream = _Stream(*self._agent.open("GET", self._path, params, timeout))
        self._begin(self._stream.next())
        return self

    def _begin(self, line):
        if "done" in line:
            self.value = line.get("value")
            self._stream.close()
            self._stream = None
        elif "held" in line:
            self.id, self.token, self.grace = line["id"], line["token"], line["grace_ms"] / 1000
            threading.Thread(target=self._watch, daemon=True).start()
        else:
            raise Lost(line.get("error") or line.get("lost"))

    def __bool__(self):
        return self._stream is not None

    def _watch(self):
        try:
            line = {}
            while "lost" not in line:
                line = self._stream.next()
            cause = line["lost"]
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as e:
            cause = "no sign of life: %s" % e
        if not self._over:
            self.cause = cause
            self.lost.set()
            if self._on_lost:
                self._on_lost(self)

    def check(self):
        """Raises Lost if the hold is lost or over. It compares the clock, so it is right even after a freeze."""
        if self._over or self.lost.is_set() or _now() > self._stream.until:
            raise Lost("%s: %s" % (self.key, self.cause or "no sign of life"))

    def progress(self, limit):
        """Renews the limit, such as "1m", with which the hold was requested."""
        self._agent.call("POST", "holds", self.id, "progress", limit=limit)

    def __exit__(self, kind, *_):
        if self._stream is None:
            return
        self._over = True
        try:
            # An exception fails a run, and a lock that is not lost is freed by closing the response.
            run = self._path[0] != "locks"
            if kind is None or self.lost.is_set() and not run:
                body = str(self.value).encode() if run and self.value is not None else None
                self._agent.call("POST", "holds", self.id, "done", body=body)
        except Exception as e:
            if kind is None:
                raise Lost("%s: %s" % (self.key, self.cause or e)) from None
        finally:
            self._stream.close()


class Elector:
    """A candidate. on_leader(line) is called on a thread of its own for each term, with its term and token;
    on_leader_loss() once for each, at once; when it returns, the work must have stopped. Both may be None."""

    def __init__(self, agent, name, on_leader=None, on_leader_loss=None, value=None, preference=None):
        self.agent, self.name, self._params = agent, name, {"value": value, "preference": preference}
        self._on_leader, self._on_leader_loss = on_leader, on_leader_loss
        self._stream, self._term, self._stop = None, None, threading.Event()
        self._thread, self._revoking = threading.Thread(target=self._run, daemon=True), threading.RLock()

    def start(self):
        self._thread.start()

    def stop(self):
        """Resigns, if this process leads, and leaves the election."""
        self._stop.set()
        self._revoke()  # before the response is closed, for then another may lead
        if self._stream:
            self._stream.close()
        self._thread.join()

    @property
    def is_leader(self):
        return self._term is not None and not self._stop.is_set() and _now() < self._stream.until

    @property
    def leader_exists(self):
        return self.agent.leader(self.name) is not None

    def _run(self):
        while not self._stop.is_set():
            try:
                self._stream = _Stream(*self.agent.open("GET", ("elections", self.name), self._params, 30))
                while not self._stop.is_set():
                    self._line(self._stream.next())
            except (OSError, ValueError, RuntimeError, http.client.HTTPException, AttributeError, Lost):
                pass  # no agent, or no sign of life
            finally:  # also if a callback raises: nobody would work as the leader of an open response
                try:
                    self._revoke()
                finally:
                    if self._stream:
                        self._stream.close()
            self._stop.wait(1)

    def _line(self, line):
        if "elected" in line:
            with self._revoking:
                if self._stop.is_set():
                    return
                self._term = line
            if self._on_leader:
                threading.Thread(target=self._on_leader, args=(line,), daemon=True).start()
        elif "lost" in line or "error" in line:
            term = self._revoke()
            if not term:
                raise Lost(line)  # the response has ended
            try:
                self.agent.call("POST", "holds", term["id"], "done")  # the work has stopped: the next may lead
            except Lost:
                pass

    def _revoke(self):
        with self._revoking:  # stop waits for a loss that is being handled
            term, self._term = self._term, None
            if term and self._on_leader_loss:
                self._on_leader_loss()
        return term
