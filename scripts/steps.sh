# Sourced by the other scripts: headings of steps, and an end with a reason.
# Colours only on a terminal.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' red='' plain=''
fi

steps_done=0

# step OF TEXT: a heading that counts itself.
step() {
  steps_done=$((steps_done + 1))
  printf '\n%s[%d/%d] %s%s\n' "$bold" "$steps_done" "$1" "$2" "$plain"
}

# note TEXT: a side remark.
note() {
  printf '%s%s%s\n' "$dim" "$1" "$plain"
}

# fail TEXT: ends the script with a reason.
fail() {
  printf '\n%s%s: %s%s\n' "$red" "${0##*/}" "$1" "$plain" >&2
  exit 1
}

# The Debian packages that everything needs.
install_packages() {
  command -v apt-get >/dev/null ||
    fail "this needs Debian 12 (or a system with apt-get and its packages)"
  scripts/packages || fail "the Debian packages could not be installed"
  echo "Debian packages: all there"
}

# ccache takes the names of headers from the compiler then, not from a run of
# the preprocessor of its own, which is a tenth of a first build.
[ -n "${CCACHE_NODEPEND:-}" ] || export CCACHE_DEPEND=1

# configure_preset NAME: CMake's own output only if it fails.
configure_preset() {
  local log
  log=$(cmake --preset "$1" 2>&1) || {
    printf '%s\n' "$log" >&2
    fail "CMake could not configure the preset '$1'; its output is above"
  }
  echo "configured in build/$1"
}
