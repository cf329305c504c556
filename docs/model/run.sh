#!/usr/bin/env bash
# Checks the models in checks.txt with Spin: each correct one to completion without an
# error, each planted bug until it is found. A run that ends otherwise is a failure, as is
# one that is not complete. Needs Debian's packages spin and gcc.
#
#	docs/model/run.sh            the quick set, for CI
#	docs/model/run.sh --all      the large ones as well: some minutes more, and up to 2 GB each
#	docs/model/run.sh weights    what concerns one model, of the quick set
#
# JOBS says how many run at a time, 2 by default; SECONDS_EACH after how long one is given up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

sets='quick' only=''
for arg; do
	case $arg in
	--all) sets='quick large' ;;
	-*) echo "usage: $0 [--all] [model]" >&2; exit 2 ;;
	*) only=$arg ;;
	esac
done
for tool in spin gcc; do
	if ! command -v "$tool" >/dev/null; then
		echo "$0: no $tool on PATH; Debian has it in the package $tool" >&2
		exit 2
	fi
done

alone=$(comm -3 <(grep -ohE 'BUG_[A-Z_]+' ./*.pml | sort -u) <(grep -ohE 'BUG_[A-Z_]+' checks.txt | sort -u))
if [ -n "$alone" ]; then
	echo "$0: planted in a model or named in checks.txt, and not both:" $alone >&2
	exit 1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export tmp

# check "set model want compact|exact flags…" verifies one line of checks.txt.
check() {
	local size model want how flags
	read -r size model want how flags <<<"$1"
	local limit=1800 seconds=${SECONDS_EACH:-300} compile=(-w -DNFAIR=4) run=(-m1000000 -w20)
	if [ "$size" = large ]; then
		limit=7000 seconds=${SECONDS_EACH:-3600} run=(-m5000000 -w24)
	fi
	if [ "$want" = ok ]; then compile+=(-O1); fi
	if [ "$how" = compact ]; then compile+=(-DHC4); else compile+=(-DCOLLAPSE); fi
	local dir name="$model $flags" begin=$SECONDS
	dir=$(mktemp -d "$tmp/XXXXXX")
	# shellcheck disable=SC2086 # flags are several words
	gcc -E -P -x c $flags "$model.pml" -o "$dir/flat.pml"
	cd "$dir"
	if grep -q '^ltl' flat.pml; then run+=(-a -f); else compile+=(-DSAFETY); fi
	if ! spin -a flat.pml >spin.out 2>&1 || ! gcc "${compile[@]}" -DMEMLIM=$limit -o pan pan.c >>spin.out 2>&1; then
		echo "FAIL $name: it does not compile"
		cat spin.out
		return 1
	fi
	timeout "$seconds" ./pan "${run[@]}" >out 2>&1 || true
	local states verdict
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
	if grep -q 'errors: [1-9]' out; then
		verdict=$(grep -m1 -oE 'assertion violated|acceptance cycle|invalid end state' out || echo 'an error')
		if [ "$want" = ok ]; then
			echo "FAIL $name: $verdict"
			cp flat.pml.trail "${TMPDIR:-/tmp}/$model.pml.trail" 2>/dev/null || true
			return 1
		fi
		echo "ok   $name: caught, $verdict ($states states, $((SECONDS - begin)) s)"
	elif ! grep -q 'errors: 0' out || grep -qE 'max search depth too small|memory limit|out of memory' out; then
		echo "FAIL $name: not complete after $((SECONDS - begin)) s"
		tail -n 5 out
		return 1
	elif [ "$want" = bug ]; then
		echo "FAIL $name: the planted bug is not caught ($states states)"
		return 1
	else
		echo "ok   $name: no error ($states states, $((SECONDS - begin)) s)"
	fi
	cd /
	rm -r "$dir"
}
export -f check

grep -vE '^(#|$)' checks.txt | while read -r size model rest; do
	if [[ " $sets " == *" $size "* ]] && [ -z "$only" -o "$only" = "$model" ]; then
		printf '%s\0' "$size $model $rest"
	fi
done >"$tmp/list"
if [ ! -s "$tmp/list" ]; then
	echo "$0: no check of that name in checks.txt" >&2
	exit 2
fi
if ! xargs -0 -n 1 -P "${JOBS:-2}" bash -c 'check "$1"' check <"$tmp/list" >"$tmp/log" 2>&1; then
	grep -v '^ok' "$tmp/log" || true
	echo "FAIL: $(grep -c '^FAIL' "$tmp/log") of $(tr -cd '\0' <"$tmp/list" | wc -c) checks"
	exit 1
fi
cat "$tmp/log"
echo "$(grep -c ': no error' "$tmp/log") models without an error, $(grep -c ': caught' "$tmp/log") planted bugs caught, in $SECONDS s"
