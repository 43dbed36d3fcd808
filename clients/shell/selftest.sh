#!/usr/bin/env bash
# What the vectors do not see: other processes, settings of the calling script, words that count.
#
#   selftest.sh URL NAMESPACE    a namespace that is there, and nobody else's

set -euo pipefail
IFS=$'\n' # as many scripts have it
. "${BASH_SOURCE[0]%/*}/acker.sh"
ACKER_QUIET=yes

fail() {
  echo "line ${BASH_LINENO[0]}: $*, $ACKER_ERROR $ACKER_WORDS" >&2
  exit 1
}
told=()
verdict() { told+=("$1 $2 $5 $6"); }
expect() { # WORDS of each verdict that waits
  told=()
  acker_handle shop verdict || fail "cannot read"
  [[ "${told[*]-}" == "$*" ]] || fail "told ${told[*]-}, not $*"
}
refused() { # CODE STATUS COMMAND..
  local status=0
  "${@:3}" || status=$?
  [[ $ACKER_ERROR == "$1" && $status == "$2" ]] || fail "$status, not $1 $2, of ${*:3}"
}

acker_open "$1" "$2"
task=mine # a variable of the script, which verdicts must not meet

# Children of several inputs, one of them acked by another process.
acker_track shop 'order "17" \ü' 2
first=${ACKER_MESSAGES[0]} second=${ACKER_MESSAGES[1]}
acker_process "$first" "$second"
acker_emit
both=$ACKER_MESSAGE
acker_emit 1
acker_ack
expect
(acker_process "$both" && acker_ack) || fail "in a subshell"
acker_process "$ACKER_MESSAGE"
acker_ack
expect 'ack completed order "17" \ü '
refused CLOSED 1 acker_ack

# A background process, and `wait`, which does not wait for redis-cli.
acker_track shop order-18
(acker_process "${ACKER_MESSAGES[0]}" && acker_fail $'no\tsuch street') &
wait
expect 'nack failed order-18 no such street'

# A message belongs to the process that began it: what $(..) emits would be in no row.
acker_track shop order-22
acker_process "${ACKER_MESSAGES[0]}"
acker_emit
before=$ACKER_MESSAGE
inner=$(refused CLOSED 1 acker_emit && printf %s "$ACKER_MESSAGE") || fail "$inner"
[[ -z $inner ]] || fail "an id of a subshell, $inner"
(refused CLOSED 1 acker_ack)
# Nor is it acked when an id could not be drawn, and the last one is not there to be sent again.
refused REFUSED 2 acker_emit 7
[[ -z $ACKER_MESSAGE ]] || fail "the last id, $ACKER_MESSAGE"
refused CLOSED 1 acker_ack
acker_process "$before"
acker_ack
expect
acker_process "${ACKER_MESSAGES[0]}"
refused REFUSED 2 acker_emit 7
acker_fail 'no id'
expect 'nack failed order-22 no id'

# Rows that wait belong to who took them in.
ACKER_BATCH=10
acker_track shop order-19
acker_process "${ACKER_MESSAGES[0]}"
acker_ack
(refused CLOSED 1 acker_flush)
(
  status=0
  acker_apply || status=$?
  ((status == 1)) || fail "applied by another process"
)
expect
acker_flush
expect 'ack completed order-19 '
ACKER_BATCH=1

# A why is cut at a letter, and may be anything.
long=$(printf 'é%.0s' {1..200})
acker_track shop order-20 1
acker_process "${ACKER_MESSAGES[0]}"
acker_fail "x$long"
expect "nack failed order-20 x${long:0:127}"
acker_track shop order-21 0
expect 'ack completed order-21 '

# What is no number is never counted with.
evil='a[$(echo run >&2)]'
refused REFUSED 2 acker_row ack 7 "$evil"
refused REFUSED 2 acker_row ack "$evil" 7
refused REFUSED 2 acker_track shop order "$evil"
refused REFUSED 2 acker_read shop "$evil"
refused REFUSED 2 acker_show "$evil"
refused REFUSED 2 acker_process "7:$evil"
refused REFUSED 2 acker_process 7:40,
acker_process 7:40
refused REFUSED 2 acker_emit "$evil"
refused REFUSED 2 acker_row ack 7 9223372036854775808
refused REFUSED 2 acker_open redis://a:b/c@d "$2"

ACKER_RETRY=0
acker_open "$1" "$2.not"
refused NAMESPACE 1 acker_track shop order
acker_open redis://127.0.0.1:1 "$2"
refused UNAVAILABLE 4 acker_track shop order
[[ $task == mine ]] || fail "a variable of the script was changed"
acker_close
echo ok
