#!/bin/bash
# Runs one case of tests/e2e/undisturbed.rs in the current folder, which is its own:
#
#   case.sh prepare|run PROGRAM [ARGUMENTS…]
#
# PROGRAM is a script beside this one, which defines `run` and may define `prepare` (always
# untraced), or a program of any other kind. Its output goes to the files `out` and `err`.
set -u
step=$1 program=$2
shift 2
CASES=$(dirname "$0")
export CASES

. "$CASES/attach.sh"
case $program in
*.sh) . "$program" ;;
*.py) run() { exec /usr/bin/python3 "$program" "$@"; } ;;
*) run() { exec "$program" "$@"; } ;;
esac

if [ "$step" = prepare ]; then
	if declare -F prepare >/dev/null; then prepare; fi
	exit
fi
exec >out 2>err </dev/null
# A script that has its own moment for it sets `attaches_later`.
[ -n "${attaches_later-}" ] || may_attach $$
run "$@"
