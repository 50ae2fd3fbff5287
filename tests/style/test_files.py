"""Rules on single files: names, sizes, lines, words."""
import re
import unittest
from pathlib import Path

import source_tree

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 120

# Names that a tool or a convention gives.
GIVEN_NAMES = {"CMakeLists.txt", "CMakePresets.json", "README.md"}
SNAKE_CASE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
FEATURE_SWITCH = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*(?:CUDA|MPI|NCCL)", re.M)

# A path of one machine, or a host. Examples use the reserved names (RFC 2606).
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:root|home|work|Users)/\w|(?<![\w.])/tmp/\w")
HOST = re.compile(r"\b(?:https?|ftp)://|\b(?!example\.)[\w-]+\.(?:org|com|net|io)\b(?!\()")


def line_of(match):
    return match.string.count("\n", 0, match.start()) + 1


def name_problem(path):
    for part in path.parts:
        if part not in GIVEN_NAMES and not part.startswith(".") and not SNAKE_CASE.fullmatch(part):
            return f"{path}: '{part}' is not in snake_case"
    return None


def length_problems(path, text):
    problems = []
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        problems.append(f"{path}: {lines} lines, at most {MAX_FILE_LINES}")
    for first, last, head in source_tree.functions(path, text):
        if last - first + 1 > MAX_FUNCTION_LINES:
            problems.append(f"{path}:{first}: function of {last - first + 1} lines, at most {MAX_FUNCTION_LINES}: "
                            f"{head[:80]}")
    return problems


def line_problems(path, text):
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        # In a table one row is one line, and so is the head of its columns.
        row_of_a_table = path.suffix == ".def" and (not line.startswith("//") or line.startswith("//   "))
        if len(line) > MAX_COLUMNS and not row_of_a_table:
            problems.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
        if line != line.rstrip():
            problems.append(f"{path}:{number}: space at the end of the line")
        if "\t" in line:
            problems.append(f"{path}:{number}: tab")
    if text and not text.endswith("\n"):
        problems.append(f"{path}: no newline at the end")
    return problems


def word_problems(path, text):
    problems = []
    for rule, what in ((UNFINISHED, "unfinished work"), (MACHINE_PATH, "path of a machine"), (HOST, "host name")):
        for match in rule.finditer(text):
            problems.append(f"{path}:{line_of(match)}: {what}: {match[0]!r}")
    return problems


def header_problems(path, text):
    problems = []
    if path.suffix == ".hpp" and len(re.findall(r"^#pragma once$", text, re.M)) != 1:
        problems.append(f"{path}: a header has one line '#pragma once'")
    if path.parts[0] == "tests":
        return problems  # a test of both kinds of build has to know in which one it is
    for match in FEATURE_SWITCH.finditer(text):
        problems.append(f"{path}:{line_of(match)}: preprocessor switch on a feature: the build chooses between files "
                        f"(no_cuda.cpp, no_mpi.cpp) instead: {match[0].strip()}")
    return problems


class Tree(unittest.TestCase):
    """Every file of the repository keeps the rules."""

    def setUp(self):
        self.files = source_tree.files()
        self.code = [f for f in self.files if source_tree.is_code(f)]
        self.assertGreater(len(self.code), 50)

    def none(self, problems):
        self.assertEqual([p for p in problems if p], [], "\n" + "\n".join(p for p in problems if p))

    def test_names(self):
        self.none([name_problem(f) for f in self.files])

    def test_lengths(self):
        self.none([p for f in self.code for p in length_problems(f, source_tree.read(f))])

    def test_lines(self):
        self.none([p for f in self.code for p in line_problems(f, source_tree.read(f))])

    def test_words(self):
        here = Path("tests/style")  # the rules name what they forbid
        text = [f for f in self.files if (f in self.code or f.suffix == ".md") and f.parent != here]
        self.none([p for f in text for p in word_problems(f, source_tree.read(f))])

    def test_headers(self):
        cpp = [f for f in self.code if f.suffix in source_tree.CPP]
        self.none([p for f in cpp for p in header_problems(f, source_tree.read(f))])


class Rules(unittest.TestCase):
    """Each rule finds what it is there for, and lets its neighbour pass."""

    def test_names(self):
        for name in ("ir/action.hpp", "tests/x/README.md", "CMakePresets.json", ".clang-format", "schedules/1f1b.yaml"):
            self.assertIsNone(name_problem(Path(name)))
        for name in ("ir/ActionTable.hpp", "ir/action-table.hpp", "Docs/x.md"):
            self.assertIsNotNone(name_problem(Path(name)))

    def test_file_length(self):
        self.assertEqual(length_problems(Path("a.hpp"), "int a;\n" * 400), [])
        self.assertEqual(length_problems(Path("a.hpp"), "int a;\n" * 401), ["a.hpp: 401 lines, at most 400"])

    def test_function_length(self):
        def cpp(lines):
            return "namespace a {\n\nvoid f(int x) const {\n" + "  g();\n" * (lines - 2) + "}\n}\n"
        self.assertEqual(length_problems(Path("a.cpp"), cpp(70)), [])
        self.assertIn("a.cpp:3: function of 71 lines", length_problems(Path("a.cpp"), cpp(71))[0])
        self.assertEqual(length_problems(Path("a.py"), "def f():\n" + "    g()\n" * 69), [])
        self.assertIn("a.py:1: function of 71", length_problems(Path("a.py"), "def f():\n" + "    g()\n" * 70)[0])
        self.assertIn("a.sh:1: function of 71", length_problems(Path("a.sh"), "f() {\n" + "  g\n" * 69 + "}\n")[0])

    def test_functions_of_cpp(self):
        text = ('#define M(x) \\\n  { x }\nstruct S : T {\n  S(int a) : a_(a), b_{1} {\n'
                '    run([] { return 1; });\n  }\n  int a() const { return "}{"[0]; }\n  int b_ = 1\'000;\n};\n'
                'enum class E { a, b };\nconst int t[] = {1,\n 2};\nTEST(A, b) {\n  if (x) {\n  }\n}\n'
                'auto g(int\n  x) -> int {\n}\n')
        self.assertEqual([(first, last) for first, last, _ in source_tree.cpp_functions(text)],
                         [(4, 6), (7, 7), (13, 16), (17, 19)])

    def test_lines(self):
        self.assertEqual(line_problems(Path("a.py"), "x" * 120 + "\n"), [])
        for text in ("x" * 121 + "\n", "x \n", "\tx\n", "x"):
            self.assertEqual(len(line_problems(Path("a.py"), text)), 1, text)

    def test_words(self):
        for text in ("// a todo list", "hacky", "/usr/lib/x", "build/tmp/x", "std.organ", "host.example", "a.common",
                     "example.org"):
            self.assertEqual(word_problems(Path("a.cpp"), text), [], text)
        for text in ("// TODO: x", "FIXME", "cd /home/me/x", "/tmp/x", "/work/x", "see https://a.b/c", "mirror.x.org"):
            self.assertEqual(len(word_problems(Path("a.cpp"), text)), 1, text)

    def test_headers(self):
        self.assertEqual(header_problems(Path("a.hpp"), "// x\n#pragma once\n#ifndef NDEBUG\n#endif\n"), [])
        self.assertEqual(len(header_problems(Path("a.hpp"), "#ifndef A_HPP\n#endif\n")), 1)
        for text in ("#ifdef FEM_HAVE_CUDA\n", "#if defined(OPEN_MPI)\n", "  # ifndef WITH_NCCL\n"):
            self.assertEqual(len(header_problems(Path("a.cpp"), text)), 1)


if __name__ == "__main__":
    unittest.main()
