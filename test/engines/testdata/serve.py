"""Starts vLLM servers that share one import.

Importing vLLM takes most of the time in which a server starts, three times for each:
the API server, the engine core and its worker. This program imports once and forks.

It reads lines of JSON from standard input, {"log": PATH, "args": [...]}, starts
`vllm serve` with the arguments for each, and prints its process id. The servers end
with standard input.
"""

import json
import os
import signal
import sys

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_INT4_W4A8="0",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    VLLM_NO_USAGE_STATS="1",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_SERVER_DEV_MODE="1",
    VLLM_WORKER_MULTIPROC_METHOD="fork",
)

import torch.cpu
import vllm.entrypoints.cli.main
import vllm.entrypoints.openai.api_server
import vllm.model_executor.models.llama
import vllm.v1.attention.backends.cpu_attn
import vllm.v1.engine.async_llm
import vllm.v1.engine.core
import vllm.v1.worker.cpu_worker
from vllm.platforms.cpu import CpuPlatform

# The CPU platform has every process import anew, and a worker in a process of its own.
settle = CpuPlatform.check_and_update_config.__func__


def keep_forking(cls, config):
    settle(cls, config)
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    if config.parallel_config.world_size == 1:
        config.parallel_config.distributed_executor_backend = "uni"


CpuPlatform.check_and_update_config = classmethod(keep_forking)

# Attention with AMX (vLLM 0.32) ends the engine core by SIGILL, at a tile instruction, when
# it computes two short prompts at once.
torch.cpu._is_amx_tile_supported = lambda: False


def main():
    # Nobody waits for the servers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    groups = []
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = ["vllm", "serve"] + job["args"]
            vllm.entrypoints.cli.main.main()
            os._exit(0)
        groups.append(pid)
        print(pid, flush=True)
    for pid in groups:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


# A server with several API servers has them import this file.
if __name__ == "__main__":
    main()
