#!/bin/bash
# From nothing to a trained model:  bash examples/quickstart.sh [femrun arguments]
# Installs what is missing, builds femc and femrun, makes token files of the King James Bible, compiles
# examples/quickstart.yaml into a plan and trains it on 4 ranks (threads). Everything is written below build/.
set -euo pipefail
# shellcheck source=cmake/bootstrap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

fem_bootstrap
cd "$FEM_ROOT"
fem_build release femc femrun

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}
out=build/quickstart
mkdir -p "$out"
run "$FEM_VENV/bin/python" examples/make_data.py --out build/data
run build/release/bin/femc plan examples/quickstart.yaml -o "$out/plan.txt"
printf '\n%s says what each pipeline rank does in a step; it begins:\n' "$out/plan.txt"
sed -n '/^program train/,$p' "$out/plan.txt" | head -n 16
run build/release/bin/femc timeline "$out/plan.txt"
rm -f "$out/metrics.jsonl"
run build/release/bin/femrun "$out/plan.txt" --metrics "$out/metrics.jsonl" --save "$out/weights" "$@"
printf '\n'
"$FEM_VENV/bin/python" examples/show_metrics.py "$out/metrics.jsonl"
printf '%-10s %s\n' plan "$out/plan.txt" metrics "$out/metrics.jsonl" weights "$out/weights"
