"""What surrounds the answers: start, health, metrics, limits, clients that leave, signals."""

import os
import signal
import socket
import subprocess
import threading
import time

import openai
import pytest
import requests

HELLO = [{"role": "user", "content": "Hello!"}]
LONG = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}


def eventually(condition, timeout=20):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def start_stream(server):
    stream = server.client().chat.completions.create(model=server.model(), messages=HELLO, stream=True, **LONG)
    iterator = iter(stream)
    for _ in range(3):
        next(iterator)
    return stream, iterator


def test_answers_from_the_first_second(start):
    """Asked without pause from its first breath, the server says 503 with its progress until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start("--port", str(port), "--served-model-name", "m")
    url = f"http://127.0.0.1:{port}"
    answers = []
    end = time.monotonic() + 60
    while time.monotonic() < end and (not answers or answers[-1].status_code != 200):
        try:
            answers.append(
                requests.post(
                    url + "/v1/chat/completions", json={"model": "m", "messages": HELLO, "max_tokens": 1}, timeout=60
                )
            )
        except requests.ConnectionError:
            time.sleep(0.001)
    assert answers[-1].status_code == 200
    for early in answers[:-1]:  # none, if loading is faster than a request
        assert early.status_code == 503
        assert early.json()["error"]["code"] == "model_loading"
        assert 0 <= early.json()["error"]["progress"] <= 1
        assert "retry-after" in early.headers
    assert requests.get(url + "/health/startup", timeout=10).status_code == 200
    server.stop()


def test_a_missing_model_is_said_and_ends_the_start(start, tmp_path):
    server = start(model=str(tmp_path / "missing"))
    assert server.process.wait(30) in (3, 4)
    assert str(tmp_path / "missing") in server.output()


def test_health_models_version(server, model):
    for path in ("/health", "/health/live", "/health/ready", "/health/startup", "/ping"):
        assert requests.get(server.url + path, timeout=10).status_code == 200, path
    client = server.client()
    assert [m.id for m in client.models.list()] == [model]
    assert client.models.retrieve(model).id == model
    assert requests.get(server.url + "/version", timeout=10).json()["version"]
    assert "rose" in requests.get(server.url + "/", timeout=10).text


def test_the_printed_curl_line_works(server):
    line = next(l for l in server.output().splitlines() if l.strip().startswith("curl "))
    done = subprocess.run(["bash", "-c", line.strip().replace("Hello!", "Hi") + " -s --max-time 100"], capture_output=True, text=True)
    assert '"chat.completion"' in done.stdout, done.stdout + done.stderr


def test_metrics_count_a_request(server, client, model):
    before = server.metric("vllm:request_success_total"), server.metric("vllm:generation_tokens_total")
    usage = client.chat.completions.create(
        model=model, messages=HELLO, max_tokens=5, extra_body={"ignore_eos": True}
    ).usage
    assert usage.completion_tokens == 5
    assert server.metric("vllm:request_success_total") == before[0] + 1
    assert eventually(lambda: server.metric("vllm:generation_tokens_total") >= before[1] + 5)
    assert server.metric("vllm:time_to_first_token_seconds_count") >= 1
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert server.metric(name) is not None, name


def test_a_client_that_leaves_frees_its_request(server):
    before = server.metric("rose_client_disconnects_total")
    stream, _ = start_stream(server)
    assert server.metric("vllm:num_requests_running") >= 1
    stream.close()
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("rose_client_disconnects_total") == before + 1


def test_a_client_that_gives_up_waiting_frees_its_request(server, model):
    client = server.client().with_options(timeout=1)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model=model, messages=HELLO, **{**LONG, "max_tokens": 100_000})
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)


def test_many_requests_at_once_all_answer(server, model):
    results = []

    def ask(seed):
        answer = server.client().chat.completions.create(
            model=model, messages=[{"role": "user", "content": f"Say {seed}."}], max_tokens=12, seed=seed
        )
        results.append(answer.usage.completion_tokens)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 16 and all(1 <= r <= 12 for r in results)
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)


def test_bad_http_is_refused_in_openais_shape(server):
    url = server.url + "/v1/chat/completions"
    cases = [
        (requests.get(url, timeout=10), 405),
        (requests.get(server.url + "/v1/nothing", timeout=10), 404),
        (requests.post(url, data="{", headers={"content-type": "application/json"}, timeout=10), 400),
        (requests.post(url, data='{"model": "m", "model": "n"}', headers={"content-type": "application/json"}, timeout=10), 400),
        (requests.post(url, data="x=1", headers={"content-type": "application/x-www-form-urlencoded"}, timeout=10), 415),
        (requests.post(url, data=b"x" * (9 << 20), headers={"content-type": "application/json"}, timeout=10), 413),
    ]
    for response, status in cases:
        assert response.status_code == status
        error = response.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"}


def test_a_prompt_that_does_not_fit_is_refused_at_once(server, client, model):
    begin = time.monotonic()
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "a" * 7_000_000}])
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is" in str(caught.value)
    assert time.monotonic() - begin < 10
    assert requests.get(server.url + "/health/ready", timeout=10).status_code == 200


def test_completions_and_tokens(server, client, model):
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=6, logprobs=2, extra_body={"ignore_eos": True})
    assert answer.object == "text_completion" and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 6
    assert "".join(
        chunk.choices[0].text for chunk in client.completions.create(model=model, prompt="Once", max_tokens=6, stream=True)
    ) is not None
    text = "Grüße, 世界 🌹"
    tokens = requests.post(server.url + "/tokenize", json={"prompt": text}, timeout=10).json()
    assert tokens["count"] == len(tokens["tokens"]) > 0
    back = requests.post(server.url + "/detokenize", json={"tokens": tokens["tokens"]}, timeout=10).json()
    assert back["prompt"] == text
    beyond = requests.post(server.url + "/detokenize", json={"tokens": [201_088]}, timeout=10)
    assert beyond.status_code == 400
    rendered = requests.post(server.url + "/tokenize", json={"messages": HELLO}, timeout=10).json()
    usage = client.chat.completions.create(model=model, messages=HELLO, max_tokens=1).usage
    assert rendered["count"] == usage.prompt_tokens, "the same renderer"


def test_keys_guard_the_api(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# comment\na-key-of-some-length\n")
    server = start("--api-key-file", str(keys)).wait_ready()
    model = server.client(api_key="a-key-of-some-length").models.list().data[0].id
    with pytest.raises(openai.AuthenticationError) as caught:
        server.client(api_key="wrong").chat.completions.create(model=model, messages=HELLO)
    assert caught.value.code == "invalid_api_key"
    server.client(api_key="a-key-of-some-length").chat.completions.create(model=model, messages=HELLO, max_tokens=1)
    server.stop()


def test_reasoning_field_is_a_choice(start):
    server = start("--reasoning-field", "both", "--served-model-name", "first,second").wait_ready()
    client = server.client()
    assert [m.id for m in client.models.list()] == ["first", "second"]
    for seed in range(6):
        message = client.chat.completions.create(
            model="second", messages=HELLO, max_tokens=60, seed=seed
        ).choices[0].message.model_dump()
        assert message.get("reasoning") == message.get("reasoning_content")
        if message.get("reasoning"):
            break
    server.stop()


def test_a_taken_port_is_said_and_is_exit_code_5(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start("--port", str(taken.getsockname()[1]))
        assert server.process.wait(30) == 5
        assert "in use" in server.output() and f"pid {os.getpid()}" in server.output()


def test_a_public_address_needs_a_key(start):
    server = start("--host", "0.0.0.0")
    assert server.process.wait(30) == 2
    assert "--api-key" in server.output()


@pytest.mark.parametrize("seconds", ["-1", "soon", "1e9"])
def test_a_watchdog_timeout_out_of_range_is_exit_code_2(start, seconds):
    server = start("--watchdog-timeout", seconds)
    assert server.process.wait(30) == 2
    assert "--watchdog-timeout" in server.output()


def test_an_idle_server_is_left_alone_by_its_watchdog(start):
    server = start("--watchdog-timeout", "1").wait_ready()
    ask = lambda: server.client().chat.completions.create(model=server.model(), messages=HELLO, max_tokens=8)
    ask()
    time.sleep(2.5)
    assert ask().usage.completion_tokens > 0
    server.signal(signal.SIGTERM)
    assert server.process.wait(20) == 0


def test_sigterm_lets_running_answers_finish(start):
    server = start().wait_ready()
    model = server.model()
    result = {}

    def ask():
        result["answer"] = server.client().chat.completions.create(
            model=model, messages=HELLO, max_tokens=300, extra_body={"ignore_eos": True}
        )

    thread = threading.Thread(target=ask)
    thread.start()
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 1)
    probe = requests.Session()
    probe.get(server.url + "/health/ready", timeout=10)
    server.signal(signal.SIGTERM)
    assert eventually(lambda: probe.get(server.url + "/health/ready", timeout=10).status_code == 503)
    refused = requests.post(server.url + "/v1/chat/completions", json={"model": model, "messages": HELLO}, timeout=10)
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "shutting_down"
    thread.join(60)
    assert result["answer"].usage.completion_tokens == 300
    assert server.process.wait(20) == 0


def test_the_drain_timeout_ends_what_does_not_finish(start):
    server = start("--drain-timeout", "0.5").wait_ready()
    _, iterator = start_stream(server)
    server.signal(signal.SIGTERM)
    with pytest.raises(openai.APIError) as caught:
        for _ in iterator:
            pass
    assert "shutting down" in str(caught.value)
    assert server.process.wait(20) == 0


def test_a_second_signal_ends_at_once(start):
    server = start("--drain-timeout", "100").wait_ready()
    start_stream(server)
    server.signal(signal.SIGINT)
    assert eventually(lambda: "draining" in server.output())
    server.signal(signal.SIGINT)
    assert server.process.wait(5) == 1


def test_an_idle_server_stops_at_once(start):
    server = start().wait_ready()
    begin = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert time.monotonic() - begin < 5
