"""Starts the real binary on a free port. ROSE_BINARY or --rose-binary names it, --rose-model the checkpoint.

The tests assert structure, so they pass with random weights too; those marked `trained` need a model that has learnt
to answer and are skipped with --rose-random.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import requests
from openai import OpenAI

ROOT = Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--rose-binary", default=os.environ.get("ROSE_BINARY", str(ROOT / "build/release/bin/rose")))
    parser.addoption("--rose-model", default=os.environ.get("ROSE_MODEL", ""), help="checkpoint; default: the embedded one")
    parser.addoption("--rose-random", action="store_true", help="the model's weights are random: skip what needs training")


def pytest_configure(config):
    config.addinivalue_line("markers", "trained: asserts what a trained model answers")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--rose-random"):
        return
    for item in items:
        if "trained" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="random weights"))


class Server:
    """One `rose serve` process."""

    def __init__(self, binary, model, *arguments, env=None):
        self.log = tempfile.TemporaryFile(mode="w+")
        port = [] if "--port" in arguments else ["--port", "0"]
        command = [binary, "serve", *([model] if model else []), *port, "--threads", "2", *arguments]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log, env={**os.environ, **(env or {})})
        self.url = None

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def wait_listening(self, timeout=60):
        return self._wait(lambda: re.search(r"listening on (http://\S+?),", self.output()), timeout)

    def wait_ready(self, timeout=120):
        self.wait_listening(timeout)
        self._wait(lambda: requests.get(self.url + "/health/ready", timeout=10).status_code == 200, timeout)
        return self

    def _wait(self, condition, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = condition()
            if found:
                if isinstance(found, re.Match):
                    self.url = found[1]
                return found
            if self.process.poll() is not None:
                raise AssertionError(f"rose ended with {self.process.returncode}:\n{self.output()}")
            time.sleep(0.02)
        raise AssertionError(f"rose is not ready after {timeout} s:\n{self.output()}")

    def client(self, **options):
        return OpenAI(base_url=self.url + "/v1", api_key=options.pop("api_key", "none"), max_retries=0, timeout=120, **options)

    def model(self):
        return requests.get(self.url + "/v1/models", timeout=10).json()["data"][0]["id"]

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def metric(self, name):
        """Sum of a metric's series."""
        text = requests.get(self.url + "/metrics", timeout=10).text
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        return sum(map(float, values)) if values else None

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="session")
def start(request):
    """start(*arguments) -> Server; all of them end with the session."""
    started = []

    def run(*arguments, model=None, env=None):
        model = request.config.getoption("--rose-model") if model is None else model
        server = Server(request.config.getoption("--rose-binary"), model, *arguments, env=env)
        started.append(server)
        return server

    yield run
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(start):
    return start().wait_ready()


@pytest.fixture()
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def model(server):
    return server.model()
