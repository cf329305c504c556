"""Locks and elections for Python, over `leasehold agent`. One file without dependencies: copy it. Python 3.8 or later.

    from leasehold import Agent, Elector, Held, Lost, Unconfirmed

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

A forked child has no holds: it closes its copies of their sockets, and must not leave their blocks. If the agent is on
another machine, which dies, TCP's keep-alive ends a wait, on Linux after two minutes.
"""
import base64
import http.client
import json
import os
import socket
import threading
import time
import urllib.parse
import weakref

_now = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
_sockets = weakref.WeakSet()


def _forked():
    for sock in list(_sockets):
        fd = sock.detach()  # not sock.close, which waits for those who read; and no shutdown, which would end the parent's
        if fd >= 0:
            os.close(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Held(Exception):
    """Others hold the key. holder has their name, host, pid and since, if known."""
    holder = None


class Lost(Exception):
    """The hold is lost."""


class Unconfirmed(Exception):
    """The hold was not lost, but nothing says that it has ended in order: a run may have succeeded or failed."""


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
            connection.here = True
        else:
            connection = http.client.HTTPConnection(urllib.parse.urlsplit(self._url).netloc, timeout=timeout)
            connection.connect()
            # Is the agent on this machine, so that both have the same clock?
            connection.here = connection.sock.getpeername()[0] == connection.sock.getsockname()[0]
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in ("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4):
                if hasattr(socket, name):
                    connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        _sockets.add(connection.sock)
        url = "/v1/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        query = urllib.parse.urlencode({name: value for name, value in params.items() if value is not None})
        headers = {"Authorization": "Bearer " + self._token} if self._token else {}
        try:
            connection.request(method, url + ("?" + query if query else ""), body=body, headers=headers)
            connection.kept = connection.sock  # getresponse can leave it to the response
            answer = connection.getresponse()
            if answer.status in (200, 204):
                return connection, answer
            text = answer.read()
            try:
                error = json.loads(text)
                error["error"]
            except (ValueError, LookupError, TypeError):  # not from an agent
                error = {"error": "HTTP status %d: %r" % (answer.status, text[:200])}
            failure = {409: Held, 404: Lost, 410: Lost}.get(answer.status, RuntimeError)(error["error"])
            failure.holder, failure.status = error.get("holder"), answer.status
            raise failure
        except BaseException:
            connection.close()
            raise


class _Stream:
    """Reads the lines of a response. Each read takes at most as long as the last line lets the client rely on it."""

    def __init__(self, connection, answer):
        self._sock, self._connection, self._answer = connection.kept, connection, answer
        self.until = 0  # of the hold, by _now()
        self._here = connection.here

    def next(self):
        line = json.loads(self._answer.readline() or '{"lost": "the response has ended"}')
        if line.get("left_ms"):
            now = _now()  # before the time of day: if this process is frozen between the two, that adds to the age
            age = max(0, time.time() - line["unix_ms"] / 1000) if self._here and "unix_ms" in line else 0
            self.until = now + line["left_ms"] / 1000 - age
            if age >= line["left_ms"] / 1000:
                raise Lost("no sign of life: the last is %.1f s old" % age)
            self._sock.settimeout(line["left_ms"] / 1000 - age)
        elif "left_ms" in line:
            self._sock.settimeout(30)
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
        try:
            self._begin(self._stream.next())
        except BaseException:
            self._stream.close()
            raise
        return self

    def _begin(self, line):
        if "done" in line:
            self.value = base64.b64decode(line["value_base64"]) if "value_base64" in line else line.get("value")
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
        except (OSError, ValueError, http.client.HTTPException, AttributeError, Lost) as e:
            cause = str(e) if isinstance(e, Lost) else "no sign of life: %s" % e
        if not self._over:
            self.cause = cause
            self.lost.set()
            if self._on_lost:
                self._on_lost(self)

    def check(self):
        """Raises Lost if the hold is lost or over. It compares the clock, so it is right after a freeze of this process."""
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
                body = self.value if run else None
                if body is not None and not isinstance(body, bytes):
                    body = str(body).encode()
                self._agent.call("POST", "holds", self.id, "done", body=body)
        except Exception as e:
            if kind is None:
                failure = Lost if isinstance(e, Lost) or self.lost.is_set() else Unconfirmed
                raise failure("%s: %s" % (self.key, self.cause or e)) from None
        finally:
            self._stream.close()


class Elector:
    """A candidate. on_leader(line) is called on a thread of its own for each term, with its term and token, when that of
    the term before has returned; a term that is over by then has no calls. on_leader_loss() is called after it, at
    once; when it returns, the work must have stopped: a loop in on_leader checks is_leader. The election ends if
    one of them raises during a term, or if the agent answers that the request or its token is wrong: then on_error(e) is
    called, or without it the exception is raised in the Elector's thread. All may be None."""

    def __init__(self, agent, name, on_leader=None, on_leader_loss=None, value=None, preference=None, on_error=None):
        self.agent, self.name, self._params = agent, name, {"value": value, "preference": preference}
        self._on_leader, self._on_leader_loss, self._on_error = on_leader, on_leader_loss, on_error
        self._stream, self._term, self._raised, self._stop = None, None, None, threading.Event()
        self._worker, self._begun, self._losing = None, False, None  # on_leader's thread, is it at work; on_leader_loss's
        self._thread, self._revoking = threading.Thread(target=self._run, daemon=True), threading.RLock()

    def start(self):
        self._thread.start()

    def stop(self):
        """Resigns, if this process leads, and leaves the election; if on_leader_loss calls it, when that has returned."""
        self._stop.set()
        if self._losing is threading.current_thread():
            return
        self._revoke()  # before the response is closed, for then another may lead
        if self._stream:
            self._stream.close()
        if self._thread is not threading.current_thread():  # on_error calls it
            self._thread.join()

    @property
    def is_leader(self):
        return self._term is not None and not self._stop.is_set() and _now() < self._stream.until

    @property
    def leader_exists(self):
        return self.agent.leader(self.name) is not None

    def _run(self):
        try:
            self._campaign()
        except Exception as e:
            if not self._on_error:
                raise
            self._on_error(e)

    def _campaign(self):
        while not self._stop.is_set():
            try:
                self._stream = _Stream(*self.agent.open("GET", ("elections", self.name), self._params, 30))
                while not self._stop.is_set():
                    self._line(self._stream.next())
            except (OSError, ValueError, RuntimeError, http.client.HTTPException, AttributeError, Lost) as e:
                if self._raised:
                    raise self._raised from None
                status = getattr(e, "status", 0)
                if 400 <= status < 500 and status not in (408, 429):  # a proxy sends those two
                    raise
                # else there is no agent, or no sign of life
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
                self._term, self._begun = line, self._on_leader is None
                if self._on_leader:
                    self._worker = threading.Thread(target=self._lead, args=(line, self._worker), daemon=True)
                    self._worker.start()
        elif "lost" in line or "error" in line:
            term = self._revoke()
            if not term:
                raise Lost(line)  # the response has ended
            try:
                self.agent.call("POST", "holds", term["id"], "done")  # the work has stopped: the next may lead
            except Lost:
                pass

    def _lead(self, term, last):
        if last:
            last.join()
        with self._revoking:
            if self._term is not term:
                return
            self._begun = True
        try:
            self._on_leader(term)
        except Exception as e:  # nobody would work as the leader of an open response
            with self._revoking:
                if self._term is not term:
                    raise
                self._raised = e
                self._revoke()
                self._stream.close()

    def _revoke(self):
        with self._revoking:  # stop waits for a loss that is being handled
            term, self._term = self._term, None
            if term and self._begun and self._on_leader_loss:
                self._losing = threading.current_thread()
                try:
                    self._on_leader_loss()
                except Exception as e:
                    self._raised = e
                    raise
                finally:
                    self._losing = None
        return term
