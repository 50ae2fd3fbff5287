"""What is at the root, and that every folder introduces itself."""
import unittest
from pathlib import Path

import source_tree

TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "README.md", "compiler", "ir", "executor", "passes", "schedules",
             "examples", "tests", "cmake", "docs"}


def layout_problems(files):
    present = {f.parts[0] for f in files if not f.parts[0].startswith(".")}
    return [f"{name}: not part of the layout" for name in sorted(present - TOP_LEVEL)] + \
           [f"{name}: missing" for name in sorted(TOP_LEVEL - present)]


def readme_problems(files):
    """Folders that hold code have a README.md; folders of data alone are explained by the one above."""
    folders = {f.parent for f in files if source_tree.is_code(f) and f.name != "CMakeLists.txt"}
    folders = {f for f in folders if not any(part.startswith(".") for part in f.parts)}
    folders = {f for f in folders if f.parts[0] != "tests" or len(f.parts) <= 2}  # deeper ones are data of a test
    return [f"{folder}: no README.md" for folder in sorted(folders) if folder / "README.md" not in files]


class Layout(unittest.TestCase):
    def test_top_level(self):
        self.assertEqual(layout_problems(source_tree.files()), [])

    def test_every_folder_has_a_readme(self):
        problems = readme_problems(source_tree.files())
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_the_rules_find_what_they_are_for(self):
        whole = [Path(name) if "." in name else Path(name) / "README.md" for name in TOP_LEVEL]
        self.assertEqual(layout_problems(whole + [Path(".clang-format")]), [])
        self.assertEqual(layout_problems(whole + [Path("src/a.cpp")]), ["src: not part of the layout"])
        self.assertEqual(layout_problems(whole[1:]), [f"{whole[0].parts[0]}: missing"])
        self.assertEqual(readme_problems([Path("ir/a.cpp"), Path("tests/ir/golden/a.txt")]), ["ir: no README.md"])
        self.assertEqual(readme_problems([Path("ir/a.cpp"), Path("ir/README.md")]), [])


if __name__ == "__main__":
    unittest.main()
