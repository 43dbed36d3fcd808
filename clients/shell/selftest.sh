#!/usr/bin/env bash
# Tests that the cases do not cover: other processes, settings of the calling script, texts that are
# evaluated as numbers.
#
#   selftest.sh URL NAMESPACE    an existing namespace that no other program uses

set -euo pipefail
IFS=$'\n' # as many scripts set it
. "${BASH_SOURCE[0]%/*}/acker.sh"
ACKER_QUIET=yes

fail() {
  echo "line ${BASH_LINENO[0]}: $*, $ACKER_ERROR $ACKER_WORDS" >&2
  exit 1
}
seen=()
verdict() { seen+=("$1 $2 $5 $6"); }
expect() { # WORDS: check each waiting outcome
  seen=()
  acker_handle shop verdict || fail "cannot read"
  [[ "${seen[*]-}" == "$*" ]] || fail "outcomes ${seen[*]-}, not $*"
}
refused() { # CODE STATUS COMMAND..
  local status=0
  "${@:3}" || status=$?
  [[ $ACKER_ERROR == "$1" && $status == "$2" ]] || fail "$status, not $1 $2, of ${*:3}"
}

acker_open "$1" "$2"
task=mine # a variable of the script, which must stay unchanged

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

# A background process; `wait` does not wait for redis-cli.
acker_track shop order-18
(acker_process "${ACKER_MESSAGES[0]}" && acker_fail $'no\tsuch street') &
wait
expect 'nack failed order-18 no such street'

# A message belongs to the process that began it: no row would have the edges that $(..) emits.
acker_track shop order-22
acker_process "${ACKER_MESSAGES[0]}"
acker_emit
before=$ACKER_MESSAGE
inner=$(refused CLOSED 1 acker_emit && printf %s "$ACKER_MESSAGE") || fail "$inner"
[[ -z $inner ]] || fail "an id of a subshell, $inner"
(refused CLOSED 1 acker_ack)
# It cannot be acked after a failed acker_emit, which leaves no old id in ACKER_MESSAGE.
refused REFUSED 2 acker_emit 7
[[ -z $ACKER_MESSAGE ]] || fail "an old id, $ACKER_MESSAGE"
refused CLOSED 1 acker_ack
acker_process "$before"
acker_ack
expect
acker_process "${ACKER_MESSAGES[0]}"
refused REFUSED 2 acker_emit 7
acker_fail 'no id'
expect 'nack failed order-22 no id'

# Waiting rows belong to the process that added them.
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

# A why is cut between characters.
long=$(printf 'é%.0s' {1..200})
acker_track shop order-20 1
acker_process "${ACKER_MESSAGES[0]}"
acker_fail "x$long"
expect "nack failed order-20 x${long:0:127}"
acker_track shop order-21 0
expect 'ack completed order-21 '

# A key gives the same id again, is used once, and may be any text.
for key in '' same "a]b'\"\\" '$(echo run >&2)' @; do
  acker_process 7:40 8:41,9:42
  acker_emit --key "$key" 1
  before=$ACKER_MESSAGE
  acker_process 7:40 9:42,8:41
  acker_emit 1 --key "$key"
  [[ $ACKER_MESSAGE == "$before" ]] || fail "another id of key $key: $ACKER_MESSAGE, not $before"
  refused REFUSED 2 acker_emit --key "$key"
  refused CLOSED 1 acker_ack
done
refused REFUSED 2 acker_track shop order --key k
acker_process 7:40
refused REFUSED 2 acker_emit --edge
# An edge that the namespace does not list is reported once. A trace does not show the salt.
trace=$(mktemp)
acker_process 7:40
{
  ACKER_QUIET='' acker_emit --edge nowhere
  ACKER_QUIET='' acker_emit --edge nowhere
} 2>"$trace"
[[ $(<"$trace") == 'acker: the namespace does not list edge nowhere '* && $(wc -l <"$trace") -eq 1 ]] ||
  fail "warnings: $(<"$trace")"
acker_open "$1" "$2"
acker_process 7:40
{
  set -x
  acker_emit --key same
  set +x
} 2>"$trace"
[[ -n $_acker_salt && $(<"$trace") == *_acker_derive* && $(<"$trace") != *"$_acker_salt"* ]] || fail 'the trace'
rm "$trace"

# A text that is not a number never reaches arithmetic.
evil='a[$(echo run >&2)]'
refused REFUSED 2 acker_row ack 7 "$evil"
refused REFUSED 2 acker_row ack "$evil" 7
refused REFUSED 2 acker_track shop order "$evil"
refused REFUSED 2 acker_read shop "$evil"
refused REFUSED 2 acker_track shop order 1 --edges mill
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
