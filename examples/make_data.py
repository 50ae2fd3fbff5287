#!/usr/bin/env python3
"""Makes token files for a byte-level model: the King James Bible, or text files of your own.

    make_data.py --out build/data                    the Bible of the Debian package bible-kjv: a document is a chapter
    make_data.py --out build/data one.txt two.txt    a document is a file

A token is a byte of UTF-8 (0 to 255); 256 ends each document, so the model's vocabulary is 257. Every n-th document is
held out (--held-out). Written are OUT/train.bin, OUT/train.idx, OUT/heldout.bin and OUT/heldout.idx in Megatron's
indexed format. Exit codes: 0 fine, 1 an error in the input, 2 usage.
"""
import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

END_OF_DOCUMENT = 256
VOCABULARY = 257
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPE_U16 = 8  # Megatron's code; tokens are u16 as the vocabulary is below 65500
ITEM_BYTES = 2
VERSE = re.compile(r"(?P<book>[1-3]?[A-Za-z]+)(?P<chapter>\d+):\d+ (?P<text>.+)")


class InputError(Exception):
    """Something is wrong with what the user gave or installed; the message is complete."""


def read_bible():
    """The chapters of the King James Bible in order, one verse a line."""
    program = shutil.which("bible")
    if program is None:
        raise InputError("the program 'bible' is missing: install the Debian package bible-kjv")
    run = subprocess.run([program, "-f", "Gen1:1-Rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if run.returncode != 0:
        message = run.stderr.decode(errors="replace").strip()
        raise InputError(f"{program} failed with exit code {run.returncode}: {message}")
    return split_chapters(run.stdout.decode("utf-8"), program)


def split_chapters(text, source):
    """Documents of lines like 'Gen1:1 In the beginning': one for each run of equal book and chapter."""
    chapters = []
    current = None
    for number, line in enumerate(text.splitlines(), start=1):
        verse = VERSE.fullmatch(line)
        if verse is None:
            raise InputError(f"{source}:{number}: not a verse (book chapter:verse text): {line[:60]!r}")
        name = (verse["book"], verse["chapter"])
        if name != current:
            chapters.append([])
            current = name
        chapters[-1].append(verse["text"])
    return ["\n".join(verses) for verses in chapters]


def read_files(paths):
    documents = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot read it as UTF-8 text: {error}") from error
        if not text.strip():
            raise InputError(f"{path}: the file has no text")
        documents.append(text)
    return documents


def tokenize(document):
    tokens = array("H", list(document.encode("utf-8")))
    tokens.append(END_OF_DOCUMENT)
    return tokens


def split_held_out(documents, every):
    """(train, held out): the last of each `every` documents is held out."""
    train = [d for i, d in enumerate(documents) if i % every != every - 1]
    held_out = documents[every - 1::every]
    if not train or not held_out:
        raise InputError(f"{len(documents)} documents cannot be split with every {every}th held out: give more "
                         "documents or a smaller --held-out (at least 2)")
    return train, held_out


def index_bytes(lengths):
    """The .idx file: one sequence a document; offsets are in bytes, document boundaries count sequences."""
    offsets = [0]
    for length in lengths[:-1]:
        offsets.append(offsets[-1] + length * ITEM_BYTES)
    count = len(lengths)
    return b"".join([
        MAGIC,
        struct.pack("<QBQQ", VERSION, DTYPE_U16, count, count + 1),
        struct.pack(f"<{count}i", *lengths),
        struct.pack(f"<{count}q", *offsets),
        struct.pack(f"<{count + 1}q", *range(count + 1)),
    ])


def write_file(path, data):
    """Writes beside the target, checks, and renames: the name never holds half a file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if Path(temporary).read_bytes() != data:
            raise OSError(f"{temporary}: what was read back differs from what was written")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_dataset(prefix, documents):
    """Writes prefix.bin and prefix.idx and returns the number of tokens."""
    sequences = [tokenize(document) for document in documents]
    tokens = array("H")
    for sequence in sequences:
        tokens.extend(sequence)
    count = len(tokens)
    if sys.byteorder == "big":
        tokens.byteswap()
    write_file(prefix.with_name(prefix.name + ".bin"), tokens.tobytes())
    write_file(prefix.with_name(prefix.name + ".idx"), index_bytes([len(s) for s in sequences]))
    return count


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the token files")
    parser.add_argument("--held-out", type=int, default=20, metavar="N",
                        help="hold out every N-th document (default 20)")
    parser.add_argument("text", nargs="*", metavar="FILE", help="text files, one document each; none: the Bible")
    options = parser.parse_args(arguments)
    if options.held_out < 2:
        parser.error(f"--held-out {options.held_out}: must be at least 2")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    try:
        documents = read_files(options.text) if options.text else read_bible()
        parts = dict(zip(("train", "heldout"), split_held_out(documents, options.held_out)))
        options.out.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            count = write_dataset(options.out / name, part)
            print(f"{options.out / name}: {len(part)} documents, {count} tokens, vocabulary {VOCABULARY}")
    except (InputError, OSError) as error:
        print(f"make_data.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
