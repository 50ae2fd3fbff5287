"""cmake/bootstrap.sh with stand-ins for the programs that look at and change the machine."""
import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(os.environ["FEM_SOURCE"]).resolve()


class Bootstrap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        self.bin = self.path / "bin"
        self.bin.mkdir()
        self.calls = self.path / "calls"
        self.calls.touch()
        self.installed = self.path / "installed"
        self.installed.write_text("g++\n")
        self.installs = f"echo libyaml-cpp-dev >> {self.installed}"
        (self.path / "packages.txt").write_text("# compiler\ng++\n\nlibyaml-cpp-dev  # reader\n")
        (self.path / "requirements.txt").write_text("# nothing\n")
        for name in ("bash", "sed", "sort", "comm", "tr", "cut", "cat", "mkdir", "dirname", "sha256sum", "flock", "rm",
                     "sync", "touch", "grep", "env"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        self.program("dpkg-query", f"sed 's/^/ii  /' {self.installed}\nexit 1")
        self.program("id", "echo 0")

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f'#!/usr/bin/bash\necho "{name} $*" >> {self.calls}\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_bootstrap(self, what="fem_bootstrap", **variables):
        script = (f"set -euo pipefail; . {ROOT}/cmake/bootstrap.sh; FEM_PACKAGES={self.path}/packages.txt; "
                  f"FEM_REQUIREMENTS={self.path}/requirements.txt; {what}")
        env = {"PATH": str(self.bin), "HOME": str(self.path / "home"), **variables}
        return subprocess.run(["/usr/bin/bash", "-c", script], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)

    def install(self):
        """The script up to the packages."""
        return self.run_bootstrap(f"FEM_CACHE={self.path}; fem_install_packages; echo fine")

    def test_nothing_is_done_when_everything_is_there(self):
        self.installed.write_text("g++\nlibyaml-cpp-dev\n")
        self.program("apt-get", "exit 1")
        result = self.install()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "fine\n", ""))
        self.assertNotIn("apt-get", self.calls.read_text())

    def test_a_missing_package_is_installed(self):
        self.program("apt-get", f'case "$*" in *install*) {self.installs};; esac')
        result = self.install()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, "femtotron: installing Debian packages: libyaml-cpp-dev\nfine\n")
        calls = [line for line in self.calls.read_text().splitlines() if " install " in line]
        self.assertEqual(len(calls), 1)
        self.assertRegex(calls[0], "^apt-get .* libyaml-cpp-dev$")
        self.assertNotIn("g++", calls[0])

    def test_a_failing_update_is_tried_twice_and_is_no_end(self):
        self.program("apt-get", f'case "$*" in *install*) {self.installs};; *) exit 100;; esac')
        result = self.install()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.calls.read_text().count(" update"), 2)
        self.assertIn("apt-get update failed", result.stdout)

    def test_without_root_and_sudo(self):
        self.program("apt-get", "")
        self.program("id", "echo 1000")
        result = self.install()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "femtotron: Debian package libyaml-cpp-dev is missing and cannot be installed: "
                                        "no root and no sudo (in all: libyaml-cpp-dev)\n")

    def test_sudo_is_used_without_root(self):
        self.program("apt-get", f'case "$*" in *install*) {self.installs};; esac')
        self.program("id", "echo 1000")
        self.program("sudo", '"$@"')
        self.assertEqual(self.install().returncode, 0)
        self.assertRegex(self.calls.read_text(), "sudo env .*apt-get .*install")

    def test_an_installation_that_fails_names_package_and_log(self):
        self.program("apt-get", "echo E: no such package; exit 100")
        result = self.install()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "femtotron: Debian package libyaml-cpp-dev is missing and apt-get cannot "
                                        f"install it: see {self.path}/apt.log\n")
        self.assertIn("no such package", (self.path / "apt.log").read_text())

    def test_another_system(self):
        (self.bin / "dpkg-query").unlink()
        result = self.install()
        self.assertEqual((result.returncode, result.stderr),
                         (1, "femtotron: dpkg-query is missing: a Debian 12 machine is needed\n"))

    def test_no_place_for_the_cache(self):
        result = self.run_bootstrap(HOME="")
        self.assertEqual((result.returncode, result.stderr),
                         (1, "femtotron: HOME is not set: no place for the cache\n"))
        (self.path / "file").touch()
        result = self.run_bootstrap(HOME=str(self.path / "file"))
        self.assertEqual((result.returncode, result.stderr),
                         (1, f"femtotron: cannot make the cache folder {self.path}/file/.cache/femtotron\n"))

    def test_an_environment_without_its_marker_is_made_again_and_must_hold_libtorch(self):
        self.installed.write_text("g++\nlibyaml-cpp-dev\n")
        self.program("apt-get", "exit 1")
        first = self.run_bootstrap()
        venv = [p for p in (self.path / "home/.cache/femtotron").iterdir() if p.is_dir()]
        self.assertEqual(len(venv), 1, first.stderr)
        self.assertEqual((first.returncode, first.stderr.count("\n")), (1, 1))
        self.assertIn(f"femtotron: LibTorch is missing in {venv[0]}", first.stderr)
        self.assertFalse((venv[0] / "complete").exists())
        (venv[0] / "left_over").touch()
        self.assertEqual(self.run_bootstrap().returncode, 1)
        self.assertFalse((venv[0] / "left_over").exists())

    def test_a_complete_environment_is_used_as_it_is(self):
        self.installed.write_text("g++\nlibyaml-cpp-dev\n")
        self.program("apt-get", "exit 1")
        self.run_bootstrap()
        venv = next(p for p in (self.path / "home/.cache/femtotron").iterdir() if p.is_dir())
        (venv / "complete").touch()
        result = self.run_bootstrap('fem_bootstrap; echo "$FEM_VENV"')
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{venv}\n", ""))

    def test_a_package_that_pip_cannot_find_is_named(self):
        self.installed.write_text("g++\nlibyaml-cpp-dev\n")
        self.program("apt-get", "exit 1")
        (self.path / "requirements.txt").write_text("femtotron-no-such-package==1.0\n")
        result = self.run_bootstrap(PIP_NO_INDEX="1")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn("No matching distribution found for femtotron-no-such-package==1.0", result.stderr)

    def add_test_packages(self, requirements, pip):
        """Adds them to an environment whose python is a stand-in."""
        (self.path / "venv/bin").mkdir(parents=True, exist_ok=True)
        python = self.path / "venv/bin/python"
        python.write_text(f'#!/usr/bin/bash\necho "pip $*" >> {self.calls}\n{pip}\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        (self.path / "test_requirements.txt").write_text(requirements)
        return self.run_bootstrap(f"FEM_TEST_REQUIREMENTS={self.path}/test_requirements.txt; FEM_CACHE={self.path}; "
                                  f"FEM_VENV={self.path}/venv; fem_add_test_packages; echo fine")

    def test_packages_of_tests_are_added_once_for_each_list(self):
        for requirements, calls in (("a==1\n", 1), ("a==1\n", 1), ("a==2\n", 2)):
            result = self.add_test_packages(requirements, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.endswith("fine\n"))
            self.assertEqual(self.calls.read_text().count("pip -m"), calls)
        self.assertRegex(self.calls.read_text(), "-r [^ ]*/requirements.txt -r [^ ]*/test_requirements.txt")

    def test_packages_of_tests_that_contradict_the_others_are_an_error(self):
        result = self.add_test_packages("numpy==1\n", "echo 'ERROR: Cannot install numpy==1 and numpy==2'; exit 1")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn("test_requirements.txt cannot be installed: Cannot install numpy==1 and numpy==2", result.stderr)
        self.assertEqual([p.name for p in (self.path / "venv").iterdir()], ["bin"])


if __name__ == "__main__":
    unittest.main()
