"""The files of the repository and what the rules need to know of their text."""
import ast
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(os.environ["FEM_SOURCE"]).resolve()

CPP = {".cpp", ".hpp", ".def"}
CODE = CPP | {".py", ".sh", ".cmake"}


def files():
    """Paths, relative to the root, of all files that are tracked or new and not ignored."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    listed = subprocess.run([*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode().split("\0")
    return sorted({Path(name) for name in listed if name and (ROOT / name).is_file()})


def is_code(path):
    return path.suffix in CODE or path.name in ("CMakeLists.txt", "run") or path.suffix == ".yaml"


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


LITERALS = re.compile(
    r'(?P<raw>R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)")|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<number>\b\d[\w\']*)|(?P<char>\'(?:\\.|[^\'\\\n])*\')', re.S)


def without_literals(text):
    """C++ text with comments blanked and strings emptied; positions of lines stay."""
    def blank(match):
        if match["number"]:
            return match[0]
        lines = "\n" * match[0].count("\n")
        return lines if match["line"] or match["block"] else '""' + lines
    return LITERALS.sub(blank, text)


# What stands before a function's brace: parameters and qualifiers, a result type, or a constructor's initialisers.
QUALIFIERS = r"((const|noexcept|override|final|mutable|&&?|->[^;={}()]+)\s*)*"
FUNCTION = re.compile(rf"\)\s*{QUALIFIERS}$|\)\s*(noexcept\s*)?:[^:].*[)}}]\s*$", re.S)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$|\bextern\s+$")


def cpp_functions(text):
    """(first line, last line, head) of each outermost function body; lambdas and blocks inside belong to it."""
    text = without_literals(text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    found = []
    kinds = []  # of the open braces: "scope", "function" or "other"
    head_start = 0
    first_line = 0
    line = 1
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == ";" and "function" not in kinds:
            head_start = position + 1
        elif char == "{":
            head = text[head_start:position]
            kind = "other"
            if "function" not in kinds:
                kind = "scope" if SCOPE.search(head) else "function" if FUNCTION.search(head) else "other"
            if kind == "function":
                first_line = line - head.lstrip().count("\n")
                found.append([first_line, None, " ".join(head.split())])
            kinds.append(kind)
            if kind == "scope":
                head_start = position + 1
        elif char == "}" and kinds:
            kind = kinds.pop()
            if kind == "function":
                found[-1][1] = line
            if kind != "other" and "function" not in kinds:  # after `member_{1}` a constructor's head goes on
                head_start = position + 1
    return [tuple(f) for f in found if f[1] is not None]


def python_functions(text):
    return [(node.lineno, node.end_lineno, node.name) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def shell_functions(text):
    found = []
    start = None
    for number, line in enumerate(text.splitlines(), start=1):
        head = re.match(r"(\w+)\(\) \{", line)
        if head and not line.rstrip().endswith("; }"):
            start = (number, head[1])
        elif line.startswith("}") and start:
            found.append((start[0], number, start[1]))
            start = None
    return found


def functions(path, text):
    if path.suffix in CPP:
        return cpp_functions(text)
    if path.suffix == ".py":
        return python_functions(text)
    if path.suffix == ".sh":
        return shell_functions(text)
    return []
