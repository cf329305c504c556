# Locks for bash 4.4 or later and curl 7.55 or later, over `leasehold agent`. One file: source it, or copy it.
#
#   . leasehold.sh
#   with_lock invoices ./invoices.sh          # waits; the command has LEASEHOLD_KEY and LEASEHOLD_TOKEN
#   with_lock 'nightly?wait=0s' ./backup.sh   # or not at all: exit status 112 if others hold it
#
# The exit status is the command's, or 112 if the key is held, 114 if the lock was lost and the command stopped (SIGTERM,
# and SIGKILL after the grace), 110 if the agent refuses or can't be reached. LEASEHOLD_AGENT is the agent's address:
# http://localhost:7474 by default, or unix:PATH; LEASEHOLD_AGENT_TOKEN is its bearer token, if it has one. In
# keys, write a slash as %2F and a question mark as %3F. The command is a program: a function of the shell would see the
# variables of this one, and what it starts would outlive a loss. If the agent's machine dies, TCP's keep-alive ends a wait.

with_lock() (
	set +e # the caller's set -e or trap on ERR would end this shell, and free the lock, when a signal interrupts wait
	trap - ERR
	key=$1
	shift
	at=${LEASEHOLD_AGENT:-http://localhost:7474} socket=()
	case $at in unix:*) socket=(--unix-socket "${at#unix:}") at=http://localhost ;; esac

	# curl reads it from standard input, so that ps does not show it.
	auth=${LEASEHOLD_AGENT_TOKEN:+Authorization: Bearer $LEASEHOLD_AGENT_TOKEN}

	# number NAME prints the number NAME of the line, without its fraction.
	number() { [[ $line =~ \"$1\":([0-9]+) ]] && echo "${BASH_REMATCH[1]}"; }

	# rely sets left to the ms for which to rely on the line, and fails if that is over: left_ms, and, if the agent is on
	# this machine, so that both have the same clock, less the age of the line.
	near=
	[[ $at =~ ^http://(localhost|127\.0\.0\.1|\[::1\])(:|/|$) ]] && near=yes
	rely() {
		left=$(number left_ms) || return
		now=${EPOCHREALTIME-} # from bash 5 on
		now=${now/[.,]/} now=$((${now:-$(printf '%(%s)T000000' -1)} / 1000))
		written=$(number unix_ms) || written=$now
		[ -n "$near" ] && [ "$written" -lt "$now" ] && left=$((left + written - now))
		[ "$left" -gt 0 ]
	}

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
	rely || { echo "with_lock: no sign of life" >&2; exit 114; }
	grace=$(number grace_ms)
	[[ $line =~ \"id\":\"([^\"]+)\" ]] && id=${BASH_REMATCH[1]}

	work= stop= # stop: a signal has come before work is set
	trap 'if [ -n "$work" ]; then kill "$work" 2>/dev/null; else stop=yes; fi' HUP INT TERM
	LEASEHOLD_KEY=${key%%\?*} LEASEHOLD_TOKEN=$(number token) "$@" <&0 {lock}<&- &
	work=$! main=$BASHPID lost=
	[ -z "$stop" ] || kill "$work" 2>/dev/null
	trap 'lost=yes' USR1
	(
		trap '' HUP INT TERM
		# Each line says how long to rely on the lock without another, and the end of the response that it is lost. If the
		# shell above was killed, the lock is held until the command has ended.
		while rely && IFS= read -r -t "$((left / 1000)).$(printf %03d "$((left % 1000))")" line <&"$lock"; do
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
	# The command has ended, so the next may have the key: wait until it may, or until the response is closed anyway.
	trap 'exit "$status"' HUP INT TERM
	kill -KILL "$watch" 2>/dev/null
	answer=$(curl -s -m "$((grace / 1000 + 1))" -o /dev/null -w '%{http_code}' -X POST "${socket[@]}" -H @- "$at/v1/holds/$id/done" <<<"$auth")
	case $lost$answer in yes* | 404 | 410) exit 114 ;; esac
	exit "$status"
)
