"""Reads a model through fault_proxy.py, again and again, each time with another fault at another request. A process of
its own, whose descriptors and threads are libst's alone.

    python3 fault_trials.py '{"store": …, "share": [0, 2], "random": 0}'

Writes one line of JSON: how many trials, how many faults came, and what was wrong.
"""

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import azure_upload
import libst
import numpy as np
from fault_proxy import PASSES, WRONG
from libst import Status
from stores import HUB_TOKEN, KEYS, store_of

HERE = Path(__file__).resolve().parent
SECRETS = (KEYS[1], HUB_TOKEN, azure_upload.KEY)
LONGEST = 120  # seconds of a call, which libst's own limits end long before
STALLS = {"silent", "stalled"}
NAMES = ("first", "rows", "last")

# What each fault that is wrong for good may be called; and whether all may be well in spite of it: a version that
# nothing else was compared with, an index that came whole, an older answer's rest on a connection.
STATUSES = {
    "no answer of HTTP": ({Status.IO}, True),
    "other range": ({Status.IO}, False),
    "said range": ({Status.IO}, False),
    "other size": ({Status.IO, Status.TRAILING_DATA}, False),
    "more": ({Status.IO}, False),
    "whole": ({Status.IO, Status.UNSUPPORTED}, True),
    "gzip": ({Status.UNSUPPORTED}, False),
    "other version": ({Status.FILE_CHANGED, Status.HEADER_TOO_LARGE, Status.CHECKSUM}, False),
    "no version": ({Status.IO, Status.UNSUPPORTED}, True),
    "replaced": ({Status.FILE_CHANGED}, True),
    "removed": ({Status.NO_FILE, Status.SHARD_MISSING, Status.FILE_CHANGED}, False),
    "401": ({Status.PERMISSION}, False),
    "403": ({Status.PERMISSION}, False),
    "redirect": ({Status.UNSUPPORTED, Status.IO}, True),
    "flipped": ({Status.CHECKSUM}, False),
}


def opened(store):
    with libst.open(store.url("model.safetensors")) as f:
        return {name: f.slice(name).shape for name in f}


def one(store):
    with libst.open(store.url("model.safetensors")) as f:
        return {"rows": f.read("rows")}


def sliced(store):
    with libst.open(store.url("model.safetensors")) as f:
        return {"rows": f.slice("rows")[101:399:3]}


def everything(store):
    return libst.load(store.url("model.safetensors.index.json"))


def whole(store):
    return libst.load(store.url("model.safetensors"))


def belongings():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


class Trials:
    def __init__(self, store):
        self._store = store_of(**store)
        self._process = subprocess.Popen(
            [sys.executable, HERE / "fault_proxy.py", json.dumps(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        port = json.loads(self._process.stdout.readline())["port"]
        os.environ.update(self._store.environment(f"127.0.0.1:{port}"))
        self._ask(version="first")
        self._right = {}
        self.trials = 0
        self.came = Counter()
        self.wrong = []

    def _ask(self, **command):
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        self._process.wait()

    def count_requests(self, operation):
        """And remembers what is right."""
        versions = []
        for version in ("second", "first"):
            self._ask(version=version)
            self._ask(faults={})
            versions.append(operation(self._store))
        self._right[operation] = versions
        return self._ask()["requests"]

    def try_one(self, operation, faults, rest=None):
        self.trials += 1
        kinds = {kind for kind in (*faults.values(), rest) if kind}
        # A busy machine may be slow, and then a fault would be asked again that is not to be.
        os.environ["ST_REMOTE_STALL_SECONDS"] = "1" if kinds & STALLS else "20"
        os.environ["ST_REMOTE_DEADLINE_SECONDS"] = "3" if rest else "60"
        self._ask(faults=faults, rest=rest)
        signal.alarm(LONGEST)
        outcome, said = self._outcome(operation)
        signal.alarm(0)
        told = self._ask()
        self.came.update(kinds if told["spoilt"] else ())
        for wrong in self._judged(outcome, said, kinds, rest, told):
            self.wrong.append(f"{operation.__name__}, {faults}, rest {rest}: {wrong}")
        if "replaced" in kinds:
            self._ask(version="first")
        return told["spoilt"]

    def _outcome(self, operation):
        try:
            read = operation(self._store)
        except libst.Error as error:
            return error.status, str(error)
        if self._equal(read, *self._right[operation]):
            return "right", ""
        return "WRONG BYTES", ""

    @staticmethod
    def _equal(read, *versions):
        """Each tensor is of one version, whole."""
        return read.keys() == versions[0].keys() and all(
            any(np.array_equal(value, version[name]) for version in versions) for name, value in read.items()
        )

    def _judged(self, outcome, said, kinds, rest, told):
        if not told["spoilt"]:
            yield "no fault came"
        may = {"right"} if kinds <= set(PASSES) and not rest else {Status.IO}
        for kind in kinds - set(PASSES):
            statuses, is_well = STATUSES[kind]
            may = (may if len(kinds) > 1 else set()) | statuses | ({"right"} if is_well else set())
        if outcome not in may:
            yield f"{outcome}, not {may}: {said}"
        if outcome != "right" and (not said or "\n" in said or "model" not in said):
            yield f"no sentence: {said!r}"
        if any(secret in said for secret in SECRETS):
            yield f"a secret is shown: {said}"
        for head in told["elsewhere"]:
            if "authorization" in head.lower() or any(secret in head for secret in SECRETS):
                yield f"keys went to another host: {head}"
        if belongings() != self.belongings:
            yield f"{belongings()} descriptors and threads, before {self.belongings}"
            self.belongings = belongings()


def main(store, share, random):
    faulthandler.register(signal.SIGALRM, chain=True)  # and then it ends the process
    trials = Trials(store)
    requests = {operation: trials.count_requests(operation) for operation in (opened, one, sliced, whole, everything)}
    trials.belongings = belongings()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cases = [
        (operation, {at: fault})
        for operation, n in requests.items()
        for at in range(1, n + 1)
        for fault in PASSES + WRONG
        if fault != "flipped" or operation in (whole, everything)
    ]
    for operation, faults in cases[share[0] :: share[1]]:
        trials.try_one(operation, faults)
    for fault in ("reset", "silent", "503")[share[0] :: share[1]]:
        trials.try_one(one, {1: None}, rest=fault)
    chance = Random(share[0])
    while random > 0:
        operation = chance.choice([*requests])
        faults = {at: chance.choice(PASSES + WRONG[:-1]) for at in chance.sample(range(1, 9), 2)}
        if STALLS & {*faults.values()} and not {*faults.values()} <= {*PASSES}:
            continue
        random -= trials.try_one(operation, faults)
    trials.end()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    if grown > 48 << 10:
        trials.wrong.append(f"{grown} KiB of memory more")
    print(
        json.dumps(
            {"trials": trials.trials, "came": trials.came, "wrong": trials.wrong, "requests": [*requests.values()]}
        )
    )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
