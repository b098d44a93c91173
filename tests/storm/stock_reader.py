"""Opens a file with the stock safetensors package, again and again, until standard input closes.

    stock_reader.py FILE    prints how often; exits 1 at the first failure, 77 if there is no stock package

What libst promises to stock readers while others change tensors in place: the header is never touched, so the
file opens at every moment, and a dead writer's journal is no business of theirs. The values may be in between.
"""

import select
import sys
import time

try:
    from safetensors import safe_open
except ImportError as e:
    print(e, flush=True)
    sys.exit(77)


def main(path: str) -> None:
    print("ready", flush=True)
    names = None
    opened = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        with safe_open(path, framework="np") as f:
            found = list(f.keys())
            names = names or found
            assert found == names, f"other tensors than before: {found}"
            f.get_tensor(found[opened % len(found)])
        opened += 1
        time.sleep(0.002)  # leave the processor to the writers
    print(opened, flush=True)


main(sys.argv[1])
