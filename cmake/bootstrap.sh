# shellcheck shell=bash
# Sourced by tests/run.sh and examples/quickstart.sh: installs what is missing, configures and builds.
# The caller has set -euo pipefail.
#
#   fem_bootstrap            Debian packages and the virtual environment; sets FEM_VENV, FEM_CACHE
#   fem_add_test_packages    Python packages that only tests need, into the virtual environment
#   fem_build PRESET TARGET...  configures build/PRESET and builds the targets (none: everything)
#
# Everything that outlives a clone is in one folder, ${XDG_CACHE_HOME:-$HOME/.cache}/femtotron: the virtual environment
# under a hash of its requirements, and ccache. Deleting the folder is safe; the next run makes it again.

FEM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
FEM_PACKAGES=$FEM_ROOT/cmake/packages.txt
FEM_REQUIREMENTS=$FEM_ROOT/cmake/requirements.txt
FEM_TEST_REQUIREMENTS=$FEM_ROOT/cmake/test_requirements.txt

fem_say() { printf 'femtotron: %s\n' "$*"; }
fem_die() {
  printf 'femtotron: %s\n' "$*" >&2
  exit 1
}

# Prints the packages of cmake/packages.txt that are not installed.
fem_missing_packages() {
  local wanted installed
  wanted=$(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$FEM_PACKAGES" | sort -u)
  # dpkg-query fails when a package is unknown and still prints the others.
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^ii *//p' | sort -u || true)
  comm -23 <(printf '%s\n' "$wanted") <(printf '%s\n' "$installed")
}

fem_install_packages() {
  local tool
  for tool in dpkg-query apt-get; do
    command -v $tool >/dev/null || fem_die "$tool is missing: a Debian 12 machine is needed"
  done
  local missing log as_root=()
  missing=$(fem_missing_packages | tr '\n' ' ')
  missing=${missing% }
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fem_die "Debian package ${missing%% *} is missing and cannot be installed: no root and no sudo (in all: $missing)"
    as_root=(sudo)
  fi
  fem_say "installing Debian packages: $missing"
  log=$FEM_CACHE/apt.log
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=600)
  "${as_root[@]}" update >"$log" 2>&1 || "${as_root[@]}" update >>"$log" 2>&1 ||
    fem_say "apt-get update failed (see $log); going on with the package lists at hand"
  # shellcheck disable=SC2086
  "${as_root[@]}" install --no-install-recommends $missing >>"$log" 2>&1 || true
  missing=$(fem_missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || fem_die "Debian package ${missing%% *} is missing and apt-get cannot install it: see $log"
}

# Debian's own python before any other on PATH: it is the one with the pinned version and with venv.
fem_find_python() {
  local python
  for python in /usr/bin/python3 python3.11 python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  fem_die "Python 3.11 with venv is missing: install the Debian packages python3 and python3-venv"
}

# One environment for each content of the requirements and version of Python. It counts once its marker is there, so an
# interrupted installation is done again.
fem_make_venv() {
  local python hash log
  python=$(fem_find_python)
  hash=$({
    cat "$FEM_REQUIREMENTS"
    "$python" -c 'import sys; print(sys.executable, sys.version)'
  } | sha256sum | cut -c1-16)
  FEM_VENV=$FEM_CACHE/venv-$hash
  [ ! -e "$FEM_VENV/complete" ] || return 0
  fem_lock_venv
  if [ ! -e "$FEM_VENV/complete" ]; then
    fem_say "installing the virtual environment $FEM_VENV (torch and its dependencies, about 5 GB, some minutes)"
    log=$FEM_CACHE/pip.log
    rm -rf "$FEM_VENV"
    "$python" -m venv "$FEM_VENV" >"$log" 2>&1 || fem_die "Python's venv is missing or broken: see $log"
    fem_pip_install -r "$FEM_REQUIREMENTS" >>"$log" 2>&1 || fem_die "$(fem_pip_failure "$FEM_REQUIREMENTS" "$log")"
    [ -e "$(echo "$FEM_VENV"/lib/python3*/site-packages/torch/lib/libtorch_cpu.so)" ] ||
      fem_die "LibTorch is missing in $FEM_VENV after its installation: see $log"
    sync -f "$FEM_VENV" && touch "$FEM_VENV/complete"
  fi
  exec 7>&-
}

# Tests alone need these: a marker of their own, so that a change of them does not install LibTorch again. Both lists go
# to pip, which then leaves the pinned packages as they are.
fem_add_test_packages() {
  local hash log=$FEM_CACHE/pip.log
  hash=$(sha256sum <"$FEM_TEST_REQUIREMENTS" | cut -c1-16)
  [ ! -e "$FEM_VENV/tests-$hash" ] || return 0
  fem_lock_venv
  if [ ! -e "$FEM_VENV/tests-$hash" ]; then
    fem_say "installing the tests' Python packages into $FEM_VENV"
    fem_pip_install -r "$FEM_REQUIREMENTS" -r "$FEM_TEST_REQUIREMENTS" >"$log" 2>&1 ||
      fem_die "$(fem_pip_failure "$FEM_TEST_REQUIREMENTS" "$log")"
    sync -f "$FEM_VENV" && touch "$FEM_VENV/tests-$hash"
  fi
  exec 7>&-
}

# Holds file descriptor 7 while this run installs.
fem_lock_venv() {
  exec 7>"$FEM_CACHE/venv.lock"
  flock -n 7 || {
    fem_say "waiting for another run that installs into $FEM_VENV"
    flock 7
  }
}

fem_pip_install() {
  "$FEM_VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off --retries 5 "$@"
}

# One line for a failed pip: the file of the requirements, the requirement that it names, or the log.
fem_pip_failure() {
  local line
  line=$(grep -m1 -E '^ERROR: (No matching distribution|Cannot install|Could not install|.*No space)' "$2" || true)
  printf 'Python packages of %s cannot be installed: %s (see %s)' "${1#"$FEM_ROOT/"}" "${line#ERROR: }" "$2"
}

fem_bootstrap() {
  [ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fem_die "HOME is not set: no place for the cache"
  FEM_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/femtotron
  mkdir -p "$FEM_CACHE" 2>/dev/null || fem_die "cannot make the cache folder $FEM_CACHE"
  [ -w "$FEM_CACHE" ] || fem_die "cannot write the cache folder $FEM_CACHE"
  fem_install_packages
  fem_make_venv
}

# fem_build PRESET TARGET...
fem_build() {
  local preset=$1 torch log
  shift
  torch=$(echo "$FEM_VENV"/lib/python3*/site-packages/torch)
  log=$FEM_ROOT/build/$preset.configure.log
  mkdir -p "$FEM_ROOT/build"
  (cd "$FEM_ROOT" && cmake --preset "$preset" -DFEM_TORCH_DIR="$torch" -DFEM_CCACHE_DIR="$FEM_CACHE/ccache") \
    >"$log" 2>&1 || fem_die "$(fem_configure_failure "$log")"
  sed -n 's/^-- \(femtotron: .*\)/\1/p' "$log"
  fem_say "building build/$preset: ${*:-everything}"
  (cd "$FEM_ROOT" && NINJA_STATUS='[%f/%t %es] ' ninja -C "build/$preset" -j "$(nproc)" "$@") ||
    fem_die "building build/$preset failed"
}

# One line for a failed configuration: our own message where there is one, else CMake's first error.
fem_configure_failure() {
  local line
  line=$(sed -n '/^  femtotron: /,/^$/p' "$1" | tr -s '\n ' ' ')  # CMake wraps long messages
  [ -n "$line" ] || line=" femtotron: CMake failed: $(grep -m1 -A2 '^CMake Error' "$1" | tr -s '\n ' ' ')"
  printf '%s(see %s)' "${line# femtotron: }" "$1"
}
