#!/usr/bin/env bash
# libst in a minute, on a real model: list it, read a slice, change tensors in place, let the stock package check
# the result; then change 4 MiB of a 1 GiB checkpoint both ways.
#   bash tests/demo.sh [--quick]     --quick: 128 MiB instead of 1 GiB
FOR=demo source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

MIB=1024
[[ ${1:-} == --quick ]] && MIB=128
export PATH=$BUILD/bindings/cli:$VENV/bin:$PATH
HERE=$ROOT/tests/demo
WHEEL=silero_vad-6.2.3-py3-none-any.whl

title() { printf '\n%s\n' "$1"; }
run() { printf '   $ %s\n' "$*" && "$@" | sed 's/^/   /'; }

WORK=$(mktemp -d "$BUILD/demo.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"

title "1. A real model: silero-vad 6.2.3, from PyPI"
[[ -f $CACHE/$WHEEL ]] ||
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$CACHE" silero-vad==6.2.3
"$PYTHON" -m zipfile -e "$CACHE/$WHEEL" wheel
cp wheel/silero_vad/data/silero_vad_16k.safetensors model.safetensors
cp model.safetensors before.safetensors
run stctl ls model.safetensors

title "2. A part of one tensor; only its bytes are read"
run stctl get model.safetensors lstm_cell.weight_ih --slice 0:2,:4

title "3. Change two tensors in place: one from Python, one from the command line"
before=$(stat -c 'inode %i, mode %a, %s bytes' model.safetensors)
cat <<'CODE'
   >>> with libst.open("model.safetensors", "r+") as f:
   ...     f.update("final_conv.bias", f["final_conv.bias"] + 0.5)      # durable when it returns
CODE
"$PYTHON" - <<'CODE'
import libst
with libst.open("model.safetensors", "r+") as f:
    was = f["final_conv.bias"].copy()
    f.update("final_conv.bias", was + 0.5)
    print(f"   {was} is now {f['final_conv.bias']}")
CODE
run stctl update model.safetensors conv1.bias --fill 0
after=$(stat -c 'inode %i, mode %a, %s bytes' model.safetensors)

title "4. What the stock package says"
"$PYTHON" "$HERE/only_changed.py" before.safetensors model.safetensors final_conv.bias conv1.bias
[[ $before == "$after" ]] || { echo "   the file itself is another: $before, then $after"; exit 1; }
[[ model.safetensors -nt before.safetensors ]] || { echo "   the time of the file did not move"; exit 1; }
echo "   still the same file ($after), with a new time of change"
run stctl verify model.safetensors

title "5. A checkpoint of $MIB MiB with the shape of Llama: change 4 MiB of it"
"$PYTHON" "$HERE/llama.py" large.safetensors "$MIB"
"$PYTHON" "$HERE/two_ways.py" large.safetensors

title "Done. README.md tells how it works."
