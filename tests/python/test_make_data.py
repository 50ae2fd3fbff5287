"""examples/make_data.py: the layout of its files (Megatron-LM, megatron/core/datasets/indexed_dataset.py), its split
and its errors. The reader here is written from the format's description and shares no code with the script."""
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(os.environ["FEM_SOURCE"]) / "examples" / "make_data.py"


def load_script():
    spec = importlib.util.spec_from_file_location("make_data", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, **options)


def read_documents(prefix):
    """Tokens of each document of an indexed dataset, after checking every field of the index."""
    index = Path(f"{prefix}.idx").read_bytes()
    tokens = Path(f"{prefix}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0", index[:9]
    version, dtype, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
    assert (version, dtype) == (1, 8), (version, dtype)
    at = 9 + 25
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    at += 4 * sequences
    offsets = struct.unpack_from(f"<{sequences}q", index, at)
    at += 8 * sequences
    boundaries = struct.unpack_from(f"<{entries}q", index, at)
    assert at + 8 * entries == len(index), "size of the index"
    assert boundaries == tuple(range(sequences + 1)), "one sequence a document"
    position = 0
    documents = []
    for length, offset in zip(lengths, offsets):
        assert offset == position, (offset, position)
        documents.append(struct.unpack_from(f"<{length}H", tokens, offset))
        position += 2 * length
    assert position == len(tokens), "size of the tokens"
    return documents


def text_of(document):
    assert document[-1] == 256 and 256 not in document[:-1], "one end-of-document token, at the end"
    return bytes(document[:-1]).decode("utf-8")


class Bible(unittest.TestCase):
    """The King James Bible has 66 books with 1189 chapters and 31102 verses."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = Path(cls.folder.name) / "new" / "data"
        cls.result = run("--out", cls.out)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_succeeds_and_says_what_it_wrote(self):
        self.assertEqual((self.result.returncode, self.result.stderr), (0, ""))
        self.assertIn("heldout: 59 documents", self.result.stdout)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["heldout.bin", "heldout.idx", "train.bin", "train.idx"])

    def test_every_chapter_is_in_one_part(self):
        train = [text_of(d) for d in read_documents(self.out / "train")]
        held_out = [text_of(d) for d in read_documents(self.out / "heldout")]
        self.assertEqual(len(held_out), 1189 // 20)
        self.assertEqual(len(train) + len(held_out), 1189)
        self.assertFalse(set(train) & set(held_out))
        self.assertEqual(sum(len(d.split("\n")) for d in train + held_out), 31102)
        self.assertGreater(sum(len(d) for d in train), 1_000_000)

    def test_text_is_that_of_the_bible_without_references(self):
        train = read_documents(self.out / "train")
        self.assertTrue(text_of(train[0]).startswith("In the beginning God created the heaven and the earth.\n"
                                                     "And the earth was without form, and void;"))
        self.assertTrue(text_of(train[-1]).endswith("The grace of our Lord Jesus Christ be with you all. Amen."))

    def test_held_out_is_every_twentieth(self):
        first = text_of(read_documents(self.out / "heldout")[0])
        self.assertTrue(first.startswith("And Abraham journeyed from thence"), first[:60])  # Genesis 20


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def write(self, name, data):
        (self.path / name).write_bytes(data)
        return self.path / name

    def test_each_file_is_a_document_of_bytes(self):
        files = [self.write(f"{i}.txt", text.encode()) for i, text in enumerate(["a", "bé", "c\n"])]
        result = run("--out", self.path / "out", "--held-out", "3", *files)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(read_documents(self.path / "out" / "train"), [(97, 256), (98, 0xC3, 0xA9, 256)])
        self.assertEqual(read_documents(self.path / "out" / "heldout"), [(99, 10, 256)])

    def test_errors_name_the_file(self):
        good = self.write("good.txt", b"text")
        for bad, words in ((self.path / "none.txt", "No such file"), (self.write("bytes.txt", b"\xff\xfe"), "UTF-8"),
                           (self.write("empty.txt", b" \n"), "no text")):
            result = run("--out", self.path / "out", good, bad)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(str(bad), result.stderr)
            self.assertIn(words, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertFalse((self.path / "out").exists())

    def test_too_few_documents_for_the_split(self):
        result = run("--out", self.path / "out", self.write("one.txt", b"text"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 documents cannot be split with every 20th held out", result.stderr)

    def test_usage(self):
        self.assertEqual(run().returncode, 2)
        self.assertEqual(run("--out", self.path, "--held-out", "1").returncode, 2)

    def test_a_missing_bible_names_its_package(self):
        result = run("--out", self.path / "out", env={"PATH": str(self.path)})
        self.assertEqual(result.returncode, 1)
        self.assertIn("install the Debian package bible-kjv", result.stderr)

    def test_out_that_is_a_file_is_an_error(self):
        files = [self.write("a.txt", b"a"), self.write("b.txt", b"b")]
        result = run("--out", files[0], "--held-out", "2", *files)
        self.assertEqual(result.returncode, 1)
        self.assertIn(str(files[0]), result.stderr)


class Parts(unittest.TestCase):
    def setUp(self):
        self.script = load_script()

    def test_a_line_that_is_no_verse_is_an_error_with_its_position(self):
        with self.assertRaisesRegex(self.script.InputError, r"bible:2: not a verse .*'Genesis'"):
            self.script.split_chapters("Gen1:1 In the beginning\nGenesis\n", "bible")

    def test_a_chapter_ends_where_book_or_number_changes(self):
        text = "Ge1:1 a\nGe1:2 b\nGe2:1 c\n1Jn2:1 d\n2Jn2:1 e\n"
        self.assertEqual(self.script.split_chapters(text, "t"), ["a\nb", "c", "d", "e"])

    def test_a_failed_write_leaves_the_old_file_and_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.bin"
            path.write_bytes(b"old")
            replace = os.replace
            try:
                os.replace = lambda *_: (_ for _ in ()).throw(OSError("disk full"))
                with self.assertRaisesRegex(OSError, "disk full"):
                    self.script.write_file(path, b"new")
            finally:
                os.replace = replace
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["x.bin"])
            self.assertEqual(path.read_bytes(), b"old")


if __name__ == "__main__":
    unittest.main()
