# Locks for bash 4.4 or later and curl 7.55 or later, over `leasehold agent`. One file: source it, or copy it.
#
#   . leasehold.sh
#   with_lock invoices ./invoices.sh          # waits; the command has LEASEHOLD_KEY and LEASEHOLD_TOKEN
#   with_lock 'nightly?wait=0s' ./backup.sh   # or not at all: exit status 112 if others hold it
#
# The exit status is the command's, or 112 if the key is held, 114 if the lock was lost and the command stopped (SIGTERM,
# and SIGKILL after the grace), 110 if the agent refuses or can't be reached. LEASEHOLD_AGENT is the agent's address:
# http://localhost:7474 by default, or unix:PATH; LEASEHOLD_AGENT_TOKEN is its bearer token, if it has one. In
# keys, write a slash as %2F and a question mark as %3F. If the agent's machine dies, TCP's keep-alive ends a wait.

with_lock() (
	set +e # the caller's set -e would end this shell, and free the lock, when a signal interrupts wait
	key=$1
	shift
	at=${LEASEHOLD_AGENT:-http://localhost:7474} socket=()
	case $at in unix:*) socket=(--unix-socket "${at#unix:}") at=http://localhost ;; esac

	# curl reads it from standard input, so that ps does not show it.
	auth=${LEASEHOLD_AGENT_TOKEN:+Authorization: Bearer $LEASEHOLD_AGENT_TOKEN}

	# number NAME prints the number NAME of the line, without its fraction.
	number() { [[ $line =~ \"$1\":([0-9]+) ]] && echo "${BASH_REMATCH[1]}"; }

	# A signal for all processes of a terminal or service must not end curl, and so free the lock, before the command has ended.
	exec {lock}< <(trap '' HUP INT TERM; exec curl -sN --connect-timeout 10 "${socket[@]}" -H @- "$at/v1/locks/$key" <<<"$auth")
	curl=$! watch=
	trap 'kill -KILL "$curl" "$watch" 2>/dev/null' EXIT # frees the lock
	IFS= read -r line <&"$lock" || line='no answer from the agent'
	case $line in
	'{"held":'*) ;;
	*'"holder":'*) echo "with_lock: $line" >&2; exit 112 ;;
	*) echo "with_lock: $line" >&2; exit 110 ;;
	esac
	grace=$(number grace_ms)
	[[ $line =~ \"id\":\"([^\"]+)\" ]] && id=${BASH_REMATCH[1]}

	LEASEHOLD_KEY=${key%%\?*} LEASEHOLD_TOKEN=$(number token) "$@" <&0 {lock}<&- &
	work=$! main=$BASHPID lost=
	trap 'kill "$work" 2>/dev/null' HUP INT TERM
	trap 'lost=yes' USR1
	(
		trap '' HUP INT TERM
		# Each line says how long to rely on the lock without another, and the end of the response that it is lost. If the
		# shell above was killed, the lock is held until the command has ended.
		while left=$(number left_ms) && IFS= read -r -t "$((left / 1000)).$(printf %03d "$((left % 1000))")" line <&"$lock"; do
			case $line in *'"lost":'*) break ;; esac
			kill -0 "$work" 2>/dev/null || exit
		done
		kill -USR1 "$main" 2>/dev/null
		kill "$work" 2>/dev/null
		sleep "$((grace / 1000)).$(printf %03d "$((grace % 1000))")"
		kill -KILL "$work" 2>/dev/null
	) >/dev/null 2>&1 &
	watch=$!
	disown "$watch" # so that bash does not report that it was killed
	wait "$work"
	status=$?
	while [ "$status" -gt 128 ] && kill -0 "$work" 2>/dev/null; do # a signal has interrupted wait
		wait "$work"
		status=$?
	done
	if [ -n "$lost" ]; then # the command has stopped, so the next may have the key; after the grace it has it anyway
		curl -s -m "$((grace / 1000 + 1))" -X POST "${socket[@]}" -H @- "$at/v1/holds/$id/done" <<<"$auth" >/dev/null
		exit 114
	fi
	exit "$status"
)
