"""Processes and threads change and read one sharded checkpoint: no state that is shown has parts of two commits.

Each commit puts one number into all tensors. With ST_TEST_BOUND=full each writer makes 5,000."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import threading

import libst
import numpy as np
from libst import Status

COMMITS = {"small": 20, "full": 5000}.get(os.environ.get("ST_TEST_BOUND", ""), 60)
NAMES = [f"{shard}.{tensor}" for shard in range(4) for tensor in range(2)]


@contextlib.contextmanager
def beside_others():
    """What is open was changed by another process, or is being changed: whoever is in the block begins anew."""
    try:
        yield
    except libst.Error as error:
        if error.status not in (Status.FILE_CHANGED, Status.BUSY):
            raise


def numbers(arrays):
    return {int(n) for array in arrays for n in (array[0], array[-1])}


def write(index, number, mixed):
    chance, done = random.Random(number), 0
    while done < COMMITS:
        with beside_others(), libst.open(index, "r+") as file:
            for _ in range(chance.randrange(1, 8)):
                for name in chance.sample(NAMES, chance.randrange(3)):
                    file.read(name)
                value = np.full(1000, number * 1_000_000 + done)
                how = {"new_names": True, "shard_grace": 0} if chance.random() < 0.3 else {}
                with file.transaction(publish=True, **how) as t:
                    for name in chance.sample(NAMES, len(NAMES)):
                        t.update(name, value)
                done += 1
                found = numbers(file.read_many(NAMES).values())
                if len(found) > 1:
                    mixed.put(("a writer", found))


def look(index, seed, over, mixed, files):
    chance, states = random.Random(seed), []
    while not over.is_set():
        with beside_others():
            file, what = chance.choice(files), chance.random()
            if what < 0.1:
                file.refresh()
            elif what < 0.2:
                states = [*states[-3:], (iter(file.items()), set())]
            elif what < 0.3:
                files[chance.randrange(len(files))] = libst.open(index)
            elif what < 0.6 and states:
                items, found = chance.choice(states)
                found |= numbers(array for _, array in itertools.islice(items, 3))
                if len(found) > 1:
                    mixed.put(("one state", found))
            else:
                names = chance.sample(NAMES, chance.randrange(1, len(NAMES) + 1))
                found = numbers(file.read_many(names).values())
                if len(found) > 1:
                    mixed.put(("one call", found))


def read(index, number, over, mixed):
    files = [libst.open(index) for _ in range(2)]
    threads = [
        threading.Thread(target=look, args=(index, seed, over, mixed, files)) for seed in (2 * number, 2 * number + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(call, errors, *arguments):
    try:
        call(*arguments)
    except BaseException as error:
        errors.put(repr(error))
        raise


def test_no_state_has_parts_of_two_commits(tmp_path):
    for shard in range(4):
        arrays = {f"{shard}.{tensor}": np.zeros(1000, np.int64) for tensor in range(2)}
        libst.save(tmp_path / f"m-{shard}.safetensors", arrays)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"m-{name[0]}.safetensors" for name in NAMES}}))

    forked = multiprocessing.get_context("fork")
    over, mixed, errors = forked.Event(), forked.Queue(), forked.Queue()
    readers = [forked.Process(target=run, args=(read, errors, index, n, over, mixed)) for n in range(2)]
    writers = [forked.Process(target=run, args=(write, errors, index, n, mixed)) for n in range(2)]
    for process in readers + writers:
        process.start()
    for process in writers:
        process.join()
    over.set()
    for process in readers:
        process.join()
    said = [queue.get() for queue in (mixed, errors) for _ in range(queue.qsize())]
    assert said == []
    assert [process.exitcode for process in readers + writers] == [0] * 4
