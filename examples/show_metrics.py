#!/usr/bin/env python3
"""Shows what a run's metrics file says about its losses:  show_metrics.py METRICS.jsonl

Reads the JSON lines of `femrun --metrics` and prints the first and last training and held-out loss and the time taken.
A file that several runs have continued shows them as one run. Exit codes: 0 fine, 1 an error in the file, 2 usage.
"""
import json
import sys


def read_lines(path):
    records = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not a line of JSON: {error}") from error
            if not isinstance(record, dict) or "step" not in record:
                raise ValueError(f"{path}:{number}: no step in it")
            records.append(record)
    return records


def change(name, points):
    """One line for [(step, loss), ...]."""
    if not points:
        return f"{name:<10} none"
    (first_step, first), (last_step, last) = points[0], points[-1]
    return f"{name:<10} loss {first:.4f} at step {first_step} -> {last:.4f} at step {last_step}"


def summary(records):
    training = [(r["step"], r["loss"]) for r in records if "loss" in r]
    held_out = [(r["step"], r["eval_loss"]) for r in records if "eval_loss" in r]
    lines = [change("training", training), change("held out", held_out)]
    if training:
        timed = [r for r in records if "elapsed_s" in r][-1:]
        lines += [f"{'time':<10} {r['elapsed_s']:.0f} s, {r['tokens_per_s']:.0f} tokens/s" for r in timed]
    return "\n".join(lines)


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        print(summary(read_lines(arguments[0])))
    except (OSError, ValueError) as error:
        print(f"show_metrics.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
