# acker.sh: track tuple trees, ack and fail messages, read the verdicts, with redis-cli only.
#
#   . acker.sh
#   acker_open redis://localhost:6379 orders
#
# Needs bash 4.1 or later, redis-cli 6.2 or later, od, mkfifo, and sha1sum and sha256sum (or shasum). See README.md.
#
# A function returns 0, or prints an error on stderr and returns
#   2  REFUSED      invalid input; nothing was sent
#   3  OVERFLOW     the tree was nacked immediately, too much is pending: emit nothing
#   4  UNAVAILABLE  no reply; the call may have been applied: never repeat it under new ids
#   1  any other code of lua/README.md, or LATE, LANE, CLOSED, REDIS
# and sets ACKER_ERROR to the code and ACKER_WORDS to the message. Results are in variables ACKER_*, because
# $(..) is another process, with a separate connection and lane, and without the message that was begun before.
# Do not call a function in a trap for a signal: the signal may interrupt another function.
# shellcheck shell=bash
# The caller reads the variables; lists of numbers are split on purpose; text is compared as text.
# shellcheck disable=SC2034,SC2071,SC2086,SC2190,SC2206,SC2317

if [[ -z ${BASH_VERSINFO:-} ]] || ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401)); then
  echo 'acker.sh needs bash 4.1 or later' >&2
  return 1 2>/dev/null || exit 1
fi

: "${ACKER_TIMEOUT:=5}"  # seconds to wait for a reply
: "${ACKER_RETRY:=10}"   # seconds for which a batch is retried
: "${ACKER_BATCH:=1}"    # number of rows that acker_ack, acker_fail and acker_touch collect before they send them
: "${ACKER_QUIET:=}"     # not empty: print no errors and warnings on stderr
: "${ACKER_CLI_OPTIONS:=}" # options for redis-cli, such as --cacert /etc/redis-ca.pem

_acker_home=${BASH_SOURCE[0]%/*}
[[ $_acker_home == "${BASH_SOURCE[0]}" ]] && _acker_home=.
_acker_home=$(cd -- "$_acker_home" && pwd) || return 1

# From lua/spec.json, by python -m proof.spec
_acker_MAX_ROWS=1024 _acker_MAX_TEXTS=65536 _acker_MAX_BLOCKS=64
_acker_SLOTS=4095 _acker_MAX_TEXT=255 _acker_MAX_TAKE=64 _acker_EDGE_BIT=55
_acker_MAX_SHARDS=1024 _acker_MIN_BUCKETS=2 _acker_MAX_BUCKETS=16 _acker_MAX_EDGES=8

# From acker_redis/protocol/codes.py, by python -m proof.spec
# Transient states; refusals that may pass; and those after which only a new connection can succeed.
_acker_PASSING='MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF'
_acker_PATIENT='OOM|NOAUTH|WRONGPASS|NOPERM'
_acker_DEMOTED='LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS'

_acker_IN_BLOCK=$((1 << 62))
# Versions of bash treat an unquoted backslash in a replacement differently.
_acker_B=\\
_acker_owner='' _acker_cli='' _acker_in='' _acker_out='' _acker_ns='' _acker_shards=''
_acker_named=() _acker_salt='' _acker_low=$(((1 << _acker_EDGE_BIT) - 1)) _acker_ids_due='' _acker_passes=''
declare -A _acker_sha=() _acker_source=() _acker_unlisted=() _acker_keys=() _acker_codes=()

# Errors

_acker_error() { # CODE WORDS
  ACKER_ERROR=$1 ACKER_WORDS=$2
  [[ -n $ACKER_QUIET ]] || printf 'acker: %s %s\n' "$1" "$2" >&2
  case $1 in
    REFUSED) return 2 ;;
    OVERFLOW) return 3 ;;
    UNAVAILABLE) return 4 ;;
    *) return 1 ;;
  esac
}

# Ids: all are below 2^63, so the signed integers of the shell can hold them.

_acker_number() { # NAME DIGITS: store a number 0 .. 2^63-1 in a variable
  local LC_ALL=C
  if ! [[ $2 =~ ^0*([0-9]{1,19})$ ]] ||
    [[ ${#BASH_REMATCH[1]} -eq 19 && ${BASH_REMATCH[1]} > 9223372036854775807 ]]; then
    # Errors reach logs, and an id is enough to ack its message.
    _acker_error REFUSED "an id is a decimal number below 2^63, not ${2//[0-9]/#}"
    return
  fi
  printf -v "$1" %s "${BASH_REMATCH[1]}"
}

_acker_tuple() { # NAME DIGITS
  _acker_number "$1" "$2" || return
  ((${!1} > 0)) || _acker_error REFUSED 'a tuple id is a number from 1 to 2^63-1, not 0'
}

_acker_anchor() { # NAME DIGITS: the anchor of a loose tree, or of a tree in a block
  _acker_number "$1" "$2" || return
  ((${!1} > 0 && !(${!1} & _acker_IN_BLOCK && (${!1} & 4095) == _acker_SLOTS))) ||
    _acker_error REFUSED "an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree, not $2"
}

_acker_name() { # KIND NAME
  local LC_ALL=C
  [[ $2 =~ ^[A-Za-z0-9_.-]{1,64}$ ]] ||
    _acker_error REFUSED "a $1 is 1 to 64 characters of A-Z a-z 0-9 _ . -, not $2"
}

_acker_text() { # KIND TEXT LEAST: check for UTF-8 without control bytes, of LEAST to _acker_MAX_TEXT bytes
  local LC_ALL=C
  if ((${#2} < $3 || ${#2} > _acker_MAX_TEXT)); then
    _acker_error REFUSED "a $1 has $3 to $_acker_MAX_TEXT bytes, this one ${#2}"
  elif [[ $2 == *[$'\001'-$'\037'$'\177']* ]]; then
    _acker_error REFUSED "a $1 must not contain control characters"
  elif [[ $2 == *[!$'\001'-$'\177']* ]] && ! iconv -f UTF-8 -t UTF-8 <<<"$2" >/dev/null 2>&1; then
    _acker_error REFUSED "a $1 must be valid UTF-8"
  fi
}

_acker_draw() { # COUNT [MASK]: draw COUNT numbers, 1 .. MASK, from the system's random source into _acker_ids
  local word words mask=${2:-9223372036854775807}
  while :; do
    _acker_ids=()
    (($1 == 0)) && return
    words=$(od -An -v -tx8 -N $((8 * $1)) /dev/urandom) || return
    for word in $words; do _acker_ids+=($((16#$word & mask))); done
    # Draw again if a word is missing, or is zero, which is no id. Equal ids have probability 2^-55 or less.
    ((${#_acker_ids[@]} == $1)) && [[ " ${_acker_ids[*]} " != *' 0 '* ]] && return
  done
}

_acker_derive() { # NAME PURPOSE PART..: store a number of 64 bits, in hex, that depends on the salt, PURPOSE and PARTs
  local LC_ALL=C _part _all=''
  for _part in "$_acker_salt" "${@:2}"; do _all+="${#_part}:$_part"; done
  _acker_hash _part 256 "$_all" || return
  printf -v "$1" %s "${_part:0:16}"
}

_acker_derive_edges() { # KEY ATTEMPT: the edge ids of a child, one for each input in `texts`, into _acker_ids
  # Each depends on all inputs: another join of the same message must not share an edge id with this one.
  local LC_ALL=C text i number sorted=() by=$((${#_acker_named[@]} ? 9 : 1))
  for text in ${texts[@]+"${texts[@]}"}; do
    for ((i = ${#sorted[@]}; i > 0; i--)); do
      [[ ${sorted[i - 1]} > $text ]] || break
      sorted[i]=${sorted[i - 1]}
    done
    sorted[i]=$text
  done
  _acker_ids=()
  for text in ${texts[@]+"${texts[@]}"}; do
    _acker_derive number child "$1" "$2" "${sorted[@]}" "$text" || return
    # >> copies the sign, which the mask removes.
    _acker_ids+=($(((16#$number >> by) & _acker_low)))
  done
}

_acker_code() { # NAME EDGE: store the bit of an edge: 0 for '', and for a name that the namespace does not list
  local IFS=' ' _k
  printf -v "$1" 0
  [[ -n $2 && -n $_acker_salt ]] || return 0 # without a salt the edges are not known yet
  for _k in ${_acker_named[@]+"${!_acker_named[@]}"}; do
    [[ ${_acker_named[_k]} == "$2" ]] || continue
    printf -v "$1" %s $((1 << (_acker_EDGE_BIT + _k)))
    return
  done
  [[ -z ${_acker_unlisted[_$2]:-} ]] || return 0
  _acker_unlisted[_$2]=yes
  [[ -n $ACKER_QUIET ]] || printf 'acker: the namespace does not list edge %s (it lists %s): %s\n' \
    "$2" "${_acker_named[*]-none}" 'verdicts cannot name it' >&2
}

_acker_untraced() { # COMMAND..: run it without set -x, which would show the salt; the salt is secret
  local traced=$- status=0
  { set +x; } 2>/dev/null
  "$@" || status=$?
  [[ $traced != *x* ]] || set -x
  return $status
}

_acker_xor() { # NAME ID..: store the XOR of distinct ids in a variable
  local _id _checked _delta=0 _name=$1 _seen=' '
  shift
  for _id; do
    _acker_tuple _checked "$_id" || return
    if [[ $_seen == *" $_checked "* ]]; then
      _acker_error REFUSED 'two messages have the same tuple id; draw an id for each'
      return
    fi
    _seen+="$_checked "
    _delta=$((_delta ^ _checked))
  done
  printf -v "$_name" %s "$_delta"
}

# The connection: one redis-cli that is kept open. A command is a line, with \x.. for binary bytes;
# so is a reply, by --csv. redis-cli retries a command once when a connection breaks.

acker_open() { # URL NAMESPACE: redis[s][+cluster]://[user:password@]host[:port][,host..][/database]
  local IFS=$' \t\n'
  local pattern='^(redis|rediss|redis\+cluster|rediss\+cluster)://(([^@/]*)@)?([^@/]*)(/([0-9]*))?$'
  if ! [[ $1 =~ $pattern ]]; then
    _acker_error REFUSED 'a URL is redis://[user:password@]host[:port][/database], or rediss, or redis+cluster;
 in a password / ? # @ and % are written %2F %3F %23 %40 %25' # the URL itself may hold a password
    return
  fi
  local scheme=${BASH_REMATCH[1]} who=${BASH_REMATCH[3]} hosts=${BASH_REMATCH[4]} db=${BASH_REMATCH[6]}
  _acker_name namespace "$2" || return
  local before="${_acker_nodes[*]-} ${_acker_options[*]-} ${_acker_password-}"
  IFS=, read -r -a _acker_nodes <<<"${hosts:-localhost}"
  _acker_options=(--csv $ACKER_CLI_OPTIONS) _acker_password=''
  [[ $scheme == *cluster ]] && _acker_options+=(-c)
  [[ $scheme == rediss* ]] && _acker_options+=(--tls)
  [[ -n $db && $db != 0 ]] && _acker_options+=(-n "$db")
  if [[ -n $who ]]; then
    who=${who//\\/"$_acker_B$_acker_B"}
    who=${who//[%]/"${_acker_B}x"}
    [[ ${who%%:*} ]] && _acker_options+=(--user "$(printf %b "${who%%:*}")")
    printf -v _acker_password %b "${who#*:}"
  fi
  _acker_ns=$2 _acker_shards='' _acker_unlisted=()
  _acker_named=() _acker_salt='' _acker_low=$(((1 << _acker_EDGE_BIT) - 1)) _acker_ids_due=''
  if [[ $_acker_owner != "$BASHPID" ]]; then
    _acker_begin
    return
  fi
  # Another namespace of the same server uses the existing connection.
  [[ $before == "${_acker_nodes[*]} ${_acker_options[*]} $_acker_password" ]] || _acker_hang_up
  _acker_clear
  _acker_lane=''
}

acker_close() { # end redis-cli; rows that were not flushed are lost, and their trees expire
  local IFS=$' \t\n'
  [[ $_acker_owner == "$BASHPID" ]] && _acker_hang_up
  _acker_clear
  _acker_ns=''
}

_acker_begin() { # start with a separate lane and connection in this process
  _acker_owner=$BASHPID
  # These are copies of the parent's pipes: its redis-cli continues, and only the parent may read a reply.
  [[ -n $_acker_cli ]] && exec {_acker_in}>&- {_acker_out}<&-
  _acker_cli=''
  # The waiting rows belong to the parent, which sends them.
  _acker_forked=''
  ((${#_acker_order[@]} == 0)) || _acker_forked=yes
  # So does the message: a message emitted here would be missing in the parent's row, so the tree could
  # be acked falsely.
  _acker_state=closed
  _acker_clear
  _acker_lane=''
}

_acker_here() {
  if [[ -z $_acker_ns ]]; then
    _acker_error CLOSED 'no namespace is open: call acker_open first'
    return
  fi
  [[ $_acker_owner == "$BASHPID" ]] || _acker_begin
}

_acker_new_lane() {
  _acker_draw 2 || { _acker_error REDIS 'od cannot read /dev/urandom'; return; }
  printf -v _acker_lane '%016x%016x' "${_acker_ids[@]}"
  _acker_seq=0
}

_acker_dial() {
  local dir node=${_acker_nodes[0]} host port
  host=${node%:*} port=${node##*:}
  [[ $node =~ :[0-9]+$ ]] || host=$node port=6379
  host=${host#[} host=${host%]}
  _acker_fault=REDIS _acker_said='mktemp or mkfifo has failed'
  dir=$(mktemp -d) && mkfifo "$dir/in" "$dir/out" || return
  exec {_acker_in}<>"$dir/in" {_acker_out}<>"$dir/out"
  # redis-cli is not a child of this shell, so `wait` does not wait for it. It ends when this shell ends.
  _acker_cli=$(
    exec 3<"$dir/in" 4>"$dir/out" {_acker_in}>&- {_acker_out}>&-
    [[ -n $_acker_password ]] && export REDISCLI_AUTH=$_acker_password
    LC_ALL=C redis-cli -h "$host" -p "$port" "${_acker_options[@]}" <&3 >&4 2>&4 3<&- 4>&- &
    echo $!
  )
  rm -r "$dir"
}

_acker_hang_up() {
  [[ -n $_acker_cli ]] || return 0
  # Kill it: it must not retry a command after this shell has stopped waiting for the reply.
  kill -KILL "$_acker_cli" 2>/dev/null
  exec {_acker_in}>&- {_acker_out}<&-
  _acker_cli=''
}

_acker_ask() { # LINE: send a command; its reply into _acker_reply
  local LC_ALL=C left=$ACKER_TIMEOUT said=''
  _acker_passes=''
  [[ -n $_acker_cli ]] || _acker_dial || return
  printf '%s\n' "$1" >&"$_acker_in"
  while IFS= read -r -t "$left" -u "$_acker_out" _acker_reply; do
    case $_acker_reply in
      '-> Redirected to slot '* | 'Warning: '*) continue ;;
      'ERROR,'*)
        _acker_unquote _acker_reply "${_acker_reply#ERROR,}"
        _acker_replied "$_acker_reply"
        return
        ;;
      '"'* | [0-9]* | -[0-9]* | '' | NULL* | NIL*) return 0 ;;
    esac
    # Only a line: the part of a reply that came before the timeout could hold the salt.
    said=$_acker_reply
    break
  done
  _acker_reply='' _acker_fault=UNAVAILABLE
  [[ $said == 'AUTH failed'* ]] && _acker_fault=REDIS _acker_passes=refused
  # Hang up: a late reply would be taken for the reply to the next command.
  _acker_hang_up
  _acker_nodes=("${_acker_nodes[@]:1}" "${_acker_nodes[0]}")
  _acker_said="Redis did not answer: ${said:-no reply within $ACKER_TIMEOUT s}; "
  _acker_said+='is it running and reachable?'
  return 4
}

_acker_replied() { # WORDS: set the code and the message for an error reply
  local pattern='^(ERR )?Error running script .*: -?(ACKER|[A-Z]+ .*)$' words=$1
  [[ $words =~ $pattern ]] && words=${BASH_REMATCH[2]}
  [[ $words == @($_acker_DEMOTED)' '* ]] && _acker_hang_up
  if [[ $words == 'ACKER '* ]]; then
    words=${words#ACKER }
    _acker_fault=${words%% *} _acker_said=${words#* }
  elif [[ $words == @($_acker_PASSING)' '* || $words == 'ERR max number of clients reached'* ]]; then
    _acker_fault=UNAVAILABLE _acker_said="Redis did not answer: $words; is it running and reachable?"
  elif [[ $words == NOSCRIPT* ]]; then
    _acker_fault=NOSCRIPT _acker_said=$words
  elif [[ $words == OOM* ]]; then
    _acker_passes=full _acker_fault=REDIS
    _acker_said='Redis is at maxmemory and refused the call; nothing was changed. '
    _acker_said+='Raise maxmemory, lower high_water, or let the sources take their outcomes'
  else
    _acker_fault=REDIS _acker_said="Redis refused the call: $words"
    # Inside a script, commands before the one that lacks a right may have run.
    if [[ $words == @($_acker_PATIENT)' '* && $words != *"The user executing the script can't "* ]]; then
      _acker_passes=refused
    fi
  fi
  return 1
}

_acker_fail_now() { _acker_error "$_acker_fault" "$_acker_said"; }

_acker_quote() { # NAME TEXT: quote it as an argument of a command line
  local _t=${2//\\/"$_acker_B$_acker_B"}
  _t=${_t//\"/"$_acker_B\""}
  _t=${_t//$'\n'/"${_acker_B}n"}
  printf -v "$1" '"%s"' "$_t"
}

_acker_unquote() { # NAME QUOTED: text without NUL
  local _t=${2#\"}
  _acker_decode "$1" "${_t%\"}"
}

_acker_decode() { # NAME TEXT: undo the escapes of redis-cli
  local _t=$2
  if [[ $_t == *\\* ]]; then
    # The text contains no raw control byte, so \001 can stand for a literal backslash.
    _t=${_t//\\\\/$'\001'}
    _t=${_t//\\\"/'"'}
    printf -v _t %b "$_t"
    _t=${_t//$'\001'/"$_acker_B"}
  fi
  printf -v "$1" %s "$_t"
}

_acker_strings() { # REPLY: store its strings, still escaped, in _acker_found
  local IFS='"' _t=${1//\\\\/$'\001'} _i _parts=()
  _t=${_t//\\\"/$'\002'}
  read -r -a _parts <<<"$_t"
  _acker_found=()
  for ((_i = 1; _i < ${#_parts[@]}; _i += 2)); do
    _t=${_parts[_i]//$'\001'/"$_acker_B$_acker_B"}
    _t=${_t//$'\002'/"$_acker_B\""}
    _acker_found+=("$_t")
  done
}

_acker_call() { # SCRIPT SHARD ARGUMENTS: call a script once; its reply into _acker_reply
  local LC_ALL=C shard="\"acker:{$_acker_ns:$2}\"" source
  if [[ -z ${_acker_sha[$1]:-} ]]; then
    IFS= read -r -d '' source <"$_acker_home/lua/$1.lua" || [[ -n $source ]] || return
    _acker_source[$1]=$source
    _acker_hash "_acker_sha[$1]" 1 "$source" || return
  fi
  local rest=" 2 $shard ${shard%\"}:meta\"$3"
  _acker_ask "EVALSHA ${_acker_sha[$1]}$rest" && return
  [[ $_acker_fault == NOSCRIPT ]] || return
  _acker_quote source "${_acker_source[$1]}"
  _acker_ask "EVAL $source$rest"
}

_acker_hash() { # NAME 1|256 TEXT: store the hex digits of its SHA-1 or SHA-256
  local _sum
  if command -v "sha$2sum" >/dev/null; then
    _sum=$(printf %s "$3" | "sha$2sum")
  else
    _sum=$(printf %s "$3" | shasum -a "$2")
  fi
  [[ $_sum =~ ^[0-9a-f]{40,64} ]] || return
  printf -v "$1" %s "${BASH_REMATCH[0]}"
}

_acker_no_hash() { _acker_error REDIS 'cannot compute a SHA-256: sha256sum and shasum are missing, or have failed'; }

_acker_now() { # NAME: store milliseconds of a monotonic clock, if there is one
  local _up
  if read -r _up _ 2>/dev/null </proc/uptime; then
    _up=${_up/./}0
  else
    _up=$(date +%s)000
  fi
  printf -v "$1" %s "$_up"
}

_acker_is_shards() { # TEXT: whether it is a power of two up to _acker_MAX_SHARDS
  [[ $1 =~ ^[1-9][0-9]{0,3}$ ]] && (($1 <= _acker_MAX_SHARDS && !($1 & ($1 - 1))))
}

_acker_configured() { # read the configuration if it is unknown
  [[ -n $_acker_shards ]] || _acker_patiently _acker_config || _acker_fail_now
}

_acker_known_ids() { # read the configuration once, if it is unknown
  # While Redis does not answer, ids have no code of an edge, which is right in any namespace.
  local begun now
  [[ -z $_acker_shards ]] || return 0
  _acker_now begun
  [[ -n $_acker_salt ]] || ((begun >= ${_acker_ids_due:-0})) || return 0
  _acker_config && return
  [[ -z $_acker_salt ]] || return 0
  [[ $_acker_fault == UNAVAILABLE ]] || { _acker_fail_now; return; }
  [[ -n $ACKER_QUIET || -n $_acker_ids_due ]] || printf 'acker: %s: messages that are emitted now carry no edge, %s: %s\n' \
    "$_acker_ns" 'because edges and salt could not be read; a verdict cannot tell on which edge one is lost' \
    "$_acker_said" >&2
  _acker_now now
  _acker_ids_due=$((now + (now - begun > 200 ? 10 * (now - begun) : 2000)))
}

_acker_config() { _acker_untraced _acker_read_config; }

_acker_read_config() { # read the configuration from shard 0
  local i n salt='' edges='' name='[A-Za-z0-9_.-]{1,64}' most=$((_acker_MAX_EDGES - 1))
  _acker_call status 0 '' || return
  _acker_strings "$_acker_reply"
  _acker_shards='' _acker_resharding=''
  n=${#_acker_found[@]}
  for ((i = 0; i + 1 < n; i += 2)); do
    case ${_acker_found[i]} in
      shards) _acker_shards=${_acker_found[i + 1]} ;;
      buckets) _acker_buckets=${_acker_found[i + 1]} ;;
      tick_ms) _acker_tick=${_acker_found[i + 1]} ;;
      reshard) _acker_resharding=${_acker_found[i + 1]} ;;
      edges) edges=${_acker_found[i + 1]} ;;
      salt) salt=${_acker_found[i + 1]} ;;
    esac
  done
  _acker_reply='' _acker_found=()
  if ! _acker_is_shards "$_acker_shards" || ! [[
    "$_acker_buckets $_acker_tick" =~ ^[1-9][0-9]?\ [1-9][0-9]{0,12}$ &&
    $salt =~ ^[0-9a-f]{32}$ && $edges =~ ^($name(,$name){0,$most})?$ ]] ||
    ((_acker_buckets < _acker_MIN_BUCKETS || _acker_buckets > _acker_MAX_BUCKETS)); then
    _acker_shards='' _acker_fault=SCHEMA _acker_said="acker:{$_acker_ns:0}:meta has been tampered with"
    return 1
  fi
  _acker_salt=$salt _acker_low=$((${#edges} ? (1 << _acker_EDGE_BIT) - 1 : 9223372036854775807))
  IFS=, read -r -a _acker_named <<<"$edges"
}

_acker_patiently() { # COMMAND..: retry an idempotent command until it is answered
  local begun now pause=20
  _acker_now begun
  until "$@"; do
    [[ $_acker_fault == UNAVAILABLE ]] || return 1
    _acker_now now
    _acker_in_time $((now - begun)) "$pause" || return 4
    _acker_pause "$pause"
    pause=$((pause < 500 ? 2 * pause : 500))
  done
}

_acker_in_time() { # ELAPSED PAUSE, both ms: whether ACKER_RETRY allows another attempt
  local LC_ALL=C ms
  printf -v ms %.0f "${ACKER_RETRY}e3"
  ((ms > $1 + $2))
}

_acker_shorter() { # MS: reduce ACKER_TIMEOUT to MS, but not below one second
  local LC_ALL=C ms
  printf -v ms %.0f "${ACKER_TIMEOUT}e3"
  if ((ms > $1 && ms > 1000)); then
    ms=$(($1 > 1000 ? $1 : 1000))
    printf -v ACKER_TIMEOUT '%d.%03d' $((ms / 1000)) $((ms % 1000))
  fi
}

_acker_pause() {
  local seconds
  printf -v seconds '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
  sleep "$seconds"
}

# Batches: rows folded per anchor.

_acker_clear() {
  _acker_task='' _acker_order=() _acker_texts=0
  declare -gA _acker_delta=() _acker_flags=() _acker_src=() _acker_why=()
}

acker_batch() { # [TASK]: begin a batch; rows of the previous batch are dropped
  local IFS=$' \t\n'
  _acker_here || return
  [[ -z ${1:-} ]] || _acker_name task "$1" || return
  _acker_clear
  _acker_task=${1:-} _acker_forked=''
}

acker_row() { # add a row; an invalid one is refused, and leaves the batch unchanged
  local IFS=$' \t\n'
  local verb=${1:-} anchor delta=0
  _acker_here || return
  case $verb in
    track | ack | fail | touch) _acker_anchor anchor "${2:-}" || return ;;
    *)
      _acker_error REFUSED "a row is track, ack, fail or touch, not $verb"
      return
      ;;
  esac
  case $verb in
    track) # ANCHOR SOURCE_ID [ID of each first message]..
      _acker_needs_task || return
      if ((anchor & _acker_IN_BLOCK)); then
        _acker_error REFUSED "anchor $anchor is in a block; this client tracks no blocks"
        return
      elif ((${_acker_flags[$anchor]:-0} & 1)); then
        _acker_error REFUSED "anchor $anchor is tracked twice; draw a new anchor for each attempt"
        return
      fi
      _acker_text 'source id' "${3:-}" 1 && _acker_xor delta "${@:4}" || return
      _acker_fold "$anchor" "$delta" 1 "$3" && _acker_src[$anchor]=$3
      ;;
    ack) # ANCHOR TUPLE [ID of each message that it caused]..
      _acker_whole delta "${@:3}" && _acker_fold "$anchor" "$delta" 0 ''
      ;;
    fail) # ANCHOR WHY [TUPLE [ID]..]: with a tuple, the message counts as processed
      _acker_text why "${3:-}" 0 || return
      (($# < 4)) || _acker_whole delta "${@:4}" || return
      _acker_failed "$anchor" "$delta" "${3:-}"
      ;;
    touch) # ANCHOR
      _acker_fold "$anchor" 0 4 ''
      ;;
  esac
}

_acker_whole() { # NAME TUPLE ID..: store a message's id XOR the ids of all messages that it caused
  local _tuple _rest _each
  _acker_tuple _tuple "${2:-}" && _acker_xor _rest "${@:3}" || return
  for _each in "${@:3}"; do
    _acker_number _each "$_each" || return
    if ((_each == _tuple)); then
      _acker_error REFUSED "a message and one that it caused have the same id; draw another"
      return
    fi
  done
  printf -v "$1" %s $((_tuple ^ _rest))
}

_acker_failed() { # ANCHOR DELTA WHY: the first non-empty why wins
  local why=$3
  [[ -z ${_acker_why[$1]:-} ]] || why=''
  _acker_fold "$1" "$2" 2 "$why" || return
  [[ -z $why ]] || _acker_why[$1]=$why
}

_acker_fold() { # ANCHOR DELTA FLAGS TEXT
  local LC_ALL=C
  if [[ -z ${_acker_flags[$1]:-} ]]; then
    _acker_room 1 ${#4} || return
    _acker_order+=("$1")
  else
    _acker_room 0 ${#4} || return
  fi
  _acker_texts=$((_acker_texts + ${#4}))
  _acker_delta[$1]=$((${_acker_delta[$1]:-0} ^ $2))
  _acker_flags[$1]=$((${_acker_flags[$1]:-0} | $3))
}

_acker_needs_task() {
  [[ -n $_acker_task ]] || _acker_error REFUSED 'a TRACK row needs a source: use acker_batch TASK'
}

_acker_room() { # ROWS TEXTS
  ((${#_acker_order[@]} + $1 <= _acker_MAX_ROWS && _acker_texts + $2 <= _acker_MAX_TEXTS)) ||
    _acker_error REFUSED "a batch has at most $_acker_MAX_ROWS rows and $_acker_MAX_TEXTS bytes of texts; \
apply this one and begin another"
}

# Packing a batch into calls: _acker_script, _acker_shard, _acker_argv and _acker_anchors have one element each.

_acker_bytes() { # NAME DELTA: append 8 bytes to a variable
  local _h
  printf -v _h %016x "$2"
  printf -v "$1" '%s\\x%s\\x%s\\x%s\\x%s\\x%s\\x%s\\x%s\\x%s' "${!1}" \
    "${_h:0:2}" "${_h:2:2}" "${_h:4:2}" "${_h:6:2}" "${_h:8:2}" "${_h:10:2}" "${_h:12:2}" "${_h:14:2}"
}

_acker_short() { # NAME NUMBER: append 2 bytes to a variable
  local _h
  printf -v _h %04x "$2"
  printf -v "$1" '%s\\x%s\\x%s' "${!1}" "${_h:0:2}" "${_h:2:2}"
}

_acker_pack() {
  local LC_ALL=C anchor shard block mask=$((_acker_shards - 1))
  local -A loose=() slots=() packed=() count=()
  local loose_order=() block_order=() shard_order=()
  _acker_script=() _acker_shard=() _acker_argv=() _acker_anchors=()
  for anchor in ${_acker_order[@]+"${_acker_order[@]}"}; do
    if ((anchor & _acker_IN_BLOCK)); then
      block=$(((anchor >> 12) & ((1 << 50) - 1)))
      [[ -n ${slots[$block]:-} ]] || block_order+=("$block")
      slots[$block]+=" $anchor"
    else
      shard=$((anchor & mask))
      [[ -n ${loose[$shard]:-} ]] || loose_order+=("$shard")
      loose[$shard]+=" $anchor"
    fi
  done
  for shard in ${loose_order[@]+"${loose_order[@]}"}; do _acker_pack_loose "$shard" ${loose[$shard]}; done
  for block in ${block_order[@]+"${block_order[@]}"}; do
    shard=$((block & mask))
    [[ -n ${packed[$shard]:-} ]] || shard_order+=("$shard")
    # The limits of a batch imply the other limits of a call.
    if ((${count[$shard]:-0} == _acker_MAX_BLOCKS)); then
      _acker_pack_call apply_blocks "$shard" "${packed[$shard]}"
      packed[$shard]='' count[$shard]=0
    fi
    _acker_pack_block "$block" ${slots[$block]}
    packed[$shard]+=$_acker_seven count[$shard]=$((${count[$shard]:-0} + 1))
  done
  for shard in ${shard_order[@]+"${shard_order[@]}"}; do
    _acker_pack_call apply_blocks "$shard" "${packed[$shard]}"
  done
}

_acker_pack_call() { # SCRIPT SHARD ARGUMENTS [ANCHOR..]
  _acker_script+=("$1") _acker_shard+=("$2") _acker_argv+=("$3") _acker_anchors+=("${*:4}")
}

_acker_pack_loose() { # SHARD ANCHOR..
  local shard=$1 anchor flags='' anchors='' deltas='' task='' sources='' whys='' text
  shift
  for anchor; do
    flags+="\\x0${_acker_flags[$anchor]}"
    _acker_bytes anchors "$anchor"
    _acker_bytes deltas "${_acker_delta[$anchor]}"
    if ((_acker_flags[$anchor] & 1)); then
      task=$_acker_task
      _acker_quote text "${_acker_src[$anchor]}"
      sources+=" $text"
    fi
    if ((_acker_flags[$anchor] & 2)); then
      _acker_quote text "${_acker_why[$anchor]:-}"
      whys+=" $text"
    fi
  done
  _acker_pack_call apply "$shard" " \"$flags\" \"$anchors\" \"$deltas\" \"$task\"$sources$whys" "$@"
}

_acker_pack_block() { # BLOCK ANCHOR..: its seven arguments into _acker_seven; another client has tracked it
  local flags=0 at='' deltas='' failed='' number='' text slot anchor rest rows=()
  _acker_bytes number "$1"
  for anchor in "${@:2}"; do rows[anchor & 4095]=$anchor; done # by slot, ascending
  for slot in "${!rows[@]}"; do
    anchor=${rows[slot]}
    flags=$((flags | _acker_flags[$anchor] & 4))
    if ((_acker_delta[$anchor])); then
      _acker_short at "$slot"
      _acker_bytes deltas "${_acker_delta[$anchor]}"
    fi
    if ((_acker_flags[$anchor] & 2)); then
      _acker_short failed "$slot"
      text=${_acker_why[$anchor]:-}
      printf -v rest '\\x%02x' ${#text}
      _acker_quote text "$text"
      failed+=$rest${text:1:${#text}-2}
    fi
  done
  _acker_seven=" \"\\x0$flags\" \"$number\" \"\" \"\" \"$at\" \"$deltas\" \"$failed\""
}

# Applying

acker_apply() { # apply the batch, which is then empty, also after an error: it cannot be applied again
  local IFS=$' \t\n'
  _acker_here && _acker_apply_batch
  local status=$?
  ((status == 0)) || _acker_lane='' # after a call of unknown outcome the lane is not used again
  _acker_clear
  return $status
}

_acker_apply_batch() {
  local i turn before
  _acker_counts
  if ((${#_acker_order[@]} == 0)); then
    [[ -z ${_acker_forked:-} ]] && return
    _acker_forked=''
    _acker_error CLOSED 'this batch was begun before the fork: only the process that began it may apply it'
    return
  fi
  [[ -n $_acker_lane ]] || _acker_new_lane || return
  for turn in first second; do
    _acker_configured || return
    _acker_pack
    for ((i = 0; i < ${#_acker_argv[@]}; i++)); do
      _acker_apply_part "$i" && continue
      # The number of shards has changed. Repack the batch if certainly no part of it was applied.
      if [[ $turn$i$_acker_sent == first01 && $_acker_fault =~ ^(SHARD|NAMESPACE)$ ]]; then
        before=$_acker_shards _acker_shards=''
        _acker_patiently _acker_config || { _acker_fail_now; return; }
        if [[ -n $_acker_resharding && $_acker_shards == "$before" ]]; then
          _acker_error BACKLOG "$_acker_ns is resharding, nothing is tracked; try again"
          return
        fi
        continue 2
      fi
      [[ $_acker_fault =~ ^(SHARD|NAMESPACE)$ ]] && _acker_shards=''
      _acker_fail_now
      return
    done
    return 0
  done
}

_acker_apply_part() { # I: retry call I until it is answered, or a retry is not allowed
  # _acker_sent counts the attempts.
  local begun now pause=20 digest horizon seq=$((_acker_seq + 1)) i=$1 ACKER_TIMEOUT=$ACKER_TIMEOUT
  _acker_seq=$seq _acker_sent=0 _acker_fault=REDIS
  _acker_said='cannot compute a digest: sha1sum and shasum are missing, or have failed'
  _acker_hash digest 1 "${_acker_script[i]}${_acker_argv[i]}" || return
  horizon=$(((_acker_buckets - 1) * _acker_tick))
  while :; do
    _acker_now now
    ((_acker_sent)) || begun=$now # the fence begins with the first attempt
    if ((now - begun > horizon)); then
      _acker_fault=LATE
      _acker_said='this batch was first sent too long ago to be sent again: its fence may have expired; '
      _acker_said+='let its trees expire'
      return 1
    fi
    _acker_sent=$((_acker_sent + 1))
    # redis-cli may retry the command automatically while this shell waits for the reply.
    _acker_shorter $((horizon - now + begun))
    _acker_send_part "$i" "$_acker_lane" "$seq" "${digest:0:16}" && return
    [[ $_acker_fault =~ ^(UNAVAILABLE|BACKLOG)$ ]] || _acker_may_wait || return
    _acker_now now
    ((now - begun + pause < horizon)) && _acker_in_time $((now - begun)) "$pause" || return
    _acker_pause "$pause"
    pause=$((pause < 500 ? 2 * pause : 500))
    if [[ $_acker_fault != BACKLOG ]]; then
      # The current configuration limits how long the fence holds.
      _acker_patiently _acker_config || [[ -n $_acker_passes ]] || return
      ((horizon <= (_acker_buckets - 1) * _acker_tick)) || horizon=$(((_acker_buckets - 1) * _acker_tick))
    fi
  done
}

_acker_may_wait() { # whether Redis refused the batch for a cause that may pass
  local anchor
  [[ $_acker_passes == full ]] || { [[ -n $_acker_passes ]]; return; }
  # Trees to be tracked do not wait for memory: they would hold up rows that free some.
  for anchor in ${_acker_order[@]+"${_acker_order[@]}"}; do
    ((_acker_flags[$anchor] & 1)) || return 0
  done
  return 1
}

_acker_send_part() { # I LANE SEQ DIGEST: send call I once; add its reply to the results
  local LC_ALL=C fence='' lane numbers name all
  if [[ -n $2 ]]; then fence=$3${4:+:$4}; fi
  _acker_quote lane "$2"
  _acker_call "${_acker_script[$1]}" "${_acker_shard[$1]}" " $lane \"$fence\"${_acker_argv[$1]}" || return
  # Check numbers before arithmetic: the shell would run a command substitution in a text.
  if [[ $_acker_reply =~ ^0,\"([0-9]{1,15})\"$ ]]; then
    ACKER_REPEATED=1
    name=${BASH_REMATCH[1]}
    if ((name > $3)); then
      _acker_fault=LANE
      _acker_said="lane $2 is at $name, this batch is $3: a later batch, or another process, has used the lane; "
      _acker_said+='this batch is not applied again'
      return 1
    fi
    return 0
  fi
  if ! [[ $_acker_reply =~ ^1,([0-9]+),([0-9]+),([0-9]+),[0-9]+,[0-9]+,[0-9]+,\"(.*)\"$ ]]; then
    _acker_fault=REDIS _acker_said='this is not a reply of the script'
    return 1
  fi
  numbers=${BASH_REMATCH[4]}
  ACKER_TRACKED=$((ACKER_TRACKED + BASH_REMATCH[1])) ACKER_ACKED=$((ACKER_ACKED + BASH_REMATCH[2]))
  ACKER_FAILED=$((ACKER_FAILED + BASH_REMATCH[3]))
  [[ -n $numbers ]] || return 0
  all=(${_acker_anchors[$1]})
  _acker_places "$numbers"
  for name in "${_acker_found[@]}"; do ACKER_REJECTED+=("${all[name]}"); done
}

_acker_counts() {
  ACKER_TRACKED=0 ACKER_ACKED=0 ACKER_FAILED=0 ACKER_REPEATED=0
  ACKER_REJECTED=() ACKER_ERROR='' ACKER_WORDS=''
}

_acker_octets() { # TEXT: the values of its bytes, which redis-cli has escaped, into `bytes`
  local LC_ALL=C text=$1 byte
  bytes=()
  while [[ -n $text ]]; do
    case $text in
      \\x*) byte=$((16#${text:2:2})) text=${text:4} ;;
      \\n*) byte=10 text=${text:2} ;;
      \\r*) byte=13 text=${text:2} ;;
      \\t*) byte=9 text=${text:2} ;;
      \\a*) byte=7 text=${text:2} ;;
      \\b*) byte=8 text=${text:2} ;;
      \\*) printf -v byte %d "'${text:1:1}" && text=${text:2} ;;
      *) printf -v byte %d "'${text:0:1}" && text=${text:1} ;;
    esac
    bytes+=("$byte")
  done
}

_acker_places() { # TEXT: 2-byte numbers, as redis-cli escapes them, into _acker_found
  local bytes i
  _acker_octets "$1"
  _acker_found=()
  for ((i = 0; i + 1 < ${#bytes[@]}; i += 2)); do _acker_found+=($((256 * bytes[i] + bytes[i + 1]))); done
}

# A source

acker_track() { # TASK SOURCE_ID [COUNT] [--edge NAME]: begin a tree; the ids of its first messages into ACKER_MESSAGES
  # NAME is the edge that the messages travel on.
  local IFS=$' \t\n'
  local count ids id sum code rest edge key
  ACKER_MESSAGES=() ACKER_ANCHOR=''
  _acker_here && acker_flush && _acker_split --edge "${@:3}" || return
  count=${rest[0]:-1}
  if ! [[ $count =~ ^[0-9]{1,4}$ ]]; then
    _acker_error REFUSED "a tree has 0 to 9999 first messages, not $count"
    return
  fi
  _acker_configured && _acker_code code "$edge" || return
  while :; do
    _acker_draw $((10#$count + 1)) || return
    ACKER_ANCHOR=$((_acker_ids[0] >> 1)) ids=() sum=0
    for id in "${_acker_ids[@]:1}"; do
      ((id &= _acker_low)) || continue 2
      ids+=($((id | code))) sum=$((sum ^ id))
    done
    # A tree whose ids cancel would be complete immediately.
    ((ACKER_ANCHOR && (sum || !${#ids[@]}))) && break
  done
  acker_batch "$1" && acker_row track "$ACKER_ANCHOR" "${2:-}" ${ids[@]+"${ids[@]}"} && acker_apply || return
  if ((${#ACKER_REJECTED[@]})); then
    _acker_error OVERFLOW "tree $2 was nacked, because too much is pending: send none of its messages"
    return
  fi
  for id in ${ids[@]+"${ids[@]}"}; do ACKER_MESSAGES+=("$ACKER_ANCHOR:$id"); done
}

_acker_split() { # OPTIONS ARGUMENT..: the options --edge NAME and --key TEXT into `edge` and `key`, others into `rest`
  local allowed=$1
  rest=() edge='' key=() # key is an array, because a key may be empty
  shift
  while (($#)); do
    case $1 in
      --*)
        if [[ " $allowed " != *" $1 "* || $# -eq 1 ]]; then
          _acker_error REFUSED "the options are $allowed, each with a text, not $1"
          return
        elif [[ $1 == --edge ]]; then edge=$2; else key=("$2"); fi
        shift 2
        ;;
      *) rest+=("$1") && shift ;;
    esac
  done
}

acker_read() { # TASK [COUNT]: waiting outcomes into ACKER_OUTCOMES, of up to COUNT entries a shard
  # An outcome is the ten fields of acker_handle, separated by tabs. acker_take deletes these entries.
  local IFS=$' \t\n'
  local LC_ALL=C shard shards key
  ACKER_OUTCOMES=() _acker_entries=()
  _acker_here && _acker_name task "${1:-}" || return
  if ! [[ ${2:-16} =~ ^[1-9][0-9]{0,5}$ ]]; then
    _acker_error REFUSED "count must be a number of entries, 1 to 999999, not $2"
    return
  fi
  _acker_configured || return
  key="acker:{$_acker_ns:0}:meta"
  _acker_patiently _acker_ask "HGET $key shards" || { _acker_fail_now; return; }
  shards=1
  if [[ $_acker_reply =~ ^\"(.*)\"$ ]]; then shards=${BASH_REMATCH[1]}; fi
  if ! _acker_is_shards "$shards"; then
    _acker_error SCHEMA "$key has been tampered with"
    return
  fi
  for ((shard = 0; shard < shards; shard++)); do
    key="acker:{$_acker_ns:$shard}:outcomes:$1"
    _acker_patiently _acker_ask "XRANGE $key - + COUNT ${2:-16}" || { _acker_fail_now; return; }
    _acker_read_entries "$shard" && continue
    ACKER_OUTCOMES=() _acker_entries=()
    _acker_error SCHEMA 'an entry of the outcomes cannot be parsed; has another program written it?'
    return
  done
}

_acker_read_entries() { # SHARD: parse the entries in _acker_reply; return 1 if one is malformed
  local i n items
  local -A fields=()
  _acker_strings "$_acker_reply"
  items=(${_acker_found[@]+"${_acker_found[@]}"})
  n=${#items[@]}
  for ((i = 0; i < n; i += 2)); do
    if [[ ${items[i]} =~ ^[0-9]+-[0-9]+$ ]]; then
      ((i == 0)) || _acker_read_entry || return
      fields=()
      _acker_entries+=("$1 ${items[i]}")
      i=$((i + 1))
    fi
    case ${items[i]} in
      verdict | reason | n | rows | block | label | age | slots | failed | nacked | present | cause | idle | residuals)
        _acker_decode "fields[${items[i]}]" "${items[i + 1]}"
        ;;
    esac
  done
  ((n == 0)) || _acker_read_entry
}

_acker_read_entry() { # add the outcomes of `fields`, one for each tree
  local said=${fields[verdict]:-} reason=${fields[reason]:-} before=${#ACKER_OUTCOMES[@]}
  if [[ -z ${fields[block]:-} ]]; then
    _acker_read_loose
  else
    _acker_read_block || return
  fi
  # If a bitmap is lost, there are more verdicts: acks of trees that failed before, or do not exist.
  [[ ${fields[n]:-} == $((${#ACKER_OUTCOMES[@]} - before)) ]]
}

_acker_read_loose() {
  local parts ends i step=6
  _acker_json "${fields[rows]:-}"
  [[ $reason == expired ]] && step=8 # the row of an expired tree has a text more
  for ((i = 1; i + step - 2 < ${#parts[@]}; i += step)); do
    [[ ${parts[i]} =~ ^[0-9a-f]{16}$ ]] || continue
    ends=("${parts[i + 4]}")
    ((step == 6)) || ends=('' "${parts[i + 4]}" "${parts[i + 6]}" "${parts[i + 7]//[!0-9]/}")
    _acker_outcome "$said" "$reason" $((16#${parts[i]})) "${parts[i + 3]//,/}" "${parts[i + 2]}" "${ends[@]}"
  done
}

_acker_read_block() {
  local age=${fields[age]:-} label=${fields[label]:-} slots=${fields[slots]:-} idle=${fields[idle]:-} base parts i slot
  local failed=${fields[failed]:-} nacked='' present=${fields[present]:-} residuals=${fields[residuals]:-} residual
  [[ ${fields[block]} =~ ^[0-9a-f]{13}$ && $age =~ ^[0-9]+$ ]] || return
  base=$((_acker_IN_BLOCK | 16#${fields[block]} << 12))
  if [[ -n ${fields[rows]:-} ]]; then
    _acker_json "${fields[rows]}"
    for ((i = 0; i + 1 < ${#parts[@]}; i += 2)); do
      _acker_outcome "$said" "$reason" $((base | ${parts[i]//[!0-9]/})) "$age" "$label" "${parts[i + 1]}"
    done
    return 0
  fi
  [[ $slots =~ ^[1-9][0-9]{0,3}$ && $slots -le $_acker_SLOTS ]] || return
  [[ -z $failed ]] || _acker_bitmap "$failed" || return
  [[ -z ${fields[present]+partial} ]] || _acker_bitmap "$present" || return
  if [[ $said == mixed ]]; then
    nacked=${fields[nacked]:-} said=ack reason=completed
    _acker_bitmap "$nacked" && [[ $idle =~ ^[0-9]+$ && $residuals =~ ^[0-9a-f]*$ ]] || return
  fi
  for ((slot = 0, i = 0; slot < slots; slot++)); do
    residual=''
    if _acker_in "$nacked" "$slot"; then
      residual=${residuals:i:16} i=$((i + 16))
      ((${#residual} == 16)) || return
    fi
    _acker_in "$failed" "$slot" && continue # it was nacked when it failed
    [[ -z $present ]] || _acker_in "$present" "$slot" || continue
    if [[ -n $residual ]]; then
      _acker_outcome nack expired $((base | slot)) "$age" "$label" '' "${fields[cause]:-}" "$residual" "$idle"
    else
      _acker_outcome "$said" "$reason" $((base | slot)) "$age" "$label" ''
    fi
  done
  [[ -z $nacked ]] || ((i == ${#residuals}))
}

_acker_bitmap() { # BITMAP: whether it is one, in hex, of `slots` slots: bit 7 of byte 0 is slot 0, the last bits are 0
  local last=$(((slots - 1) % 8 + 1))
  [[ $1 =~ ^[0-9a-f]+$ && ${#1} -eq $(((slots + 7) / 8 * 2)) ]] && ((!(16#${1: -2} & 0xff >> last)))
}

_acker_in() { # BITMAP SLOT: whether the slot is in it; no slot is in ''
  ((16#0${1:$2 / 4:1} >> (3 - $2 % 4) & 1))
}

_acker_json() { # TEXT: split it at its quotes into `parts`: texts outside and inside of quotes alternate
  local IFS='"' _t=${1//\\\\/$'\001'} _i
  _t=${_t//\\\"/$'\002'}
  read -r -a parts <<<"$_t"
  for _i in "${!parts[@]}"; do
    _t=${parts[_i]//$'\001'/"$_acker_B"}
    _t=${_t//$'\002'/'"'}
    parts[_i]=$_t
  done
}

_acker_outcome() { # VERDICT REASON ANCHOR AGE SOURCE_ID WHY [CAUSE RESIDUAL IDLE_MS]: none of them contains a tab
  local IFS=, k names=() words
  if [[ ${8:-} =~ ^[0-9a-f]{16}$ ]]; then
    for k in ${_acker_named[@]+"${!_acker_named[@]}"}; do
      ((16#$8 >> (_acker_EDGE_BIT + k) & 1)) && names+=("${_acker_named[k]}")
    done
  fi
  words=("${@:1:6}" "${7:-}" "${8:-}" "${9:-0}" "${names[*]-}")
  IFS=$'\t'
  ACKER_OUTCOMES+=("${words[*]}")
}

acker_take() { # TASK: delete the entries of the last acker_read, after they were handled
  local IFS=$' \t\n'
  local entry shard left=() looked
  local -A of=()
  _acker_here && _acker_name task "${1:-}" || return
  for entry in ${_acker_entries[@]+"${_acker_entries[@]}"}; do of[${entry% *}]+=" ${entry#* }"; done
  for ((shard = 0; shard < _acker_MAX_SHARDS && ${#of[@]}; shard++)); do
    left=(${of[$shard]:-})
    unset "of[$shard]"
    while ((${#left[@]})); do
      # Taking is idempotent: the script skips deleted entries.
      _acker_patiently _acker_call take "$shard" " \"$1\" ${left[*]:0:_acker_MAX_TAKE}" || { _acker_fail_now; return; }
      looked=${_acker_reply##*,}
      [[ $looked =~ ^[1-9][0-9]?$ ]] || looked=${#left[@]}
      left=("${left[@]:looked}")
    done
  done
  _acker_entries=()
}

acker_handle() { # TASK COMMAND..: run COMMAND.. with the fields of each waiting outcome, which are
  #   VERDICT REASON ANCHOR AGE SOURCE_ID WHY CAUSE RESIDUAL IDLE_MS EDGES
  # The last four describe a tree that expired: idle or deadline, the XOR of the ids of its outstanding messages
  # (16 hex digits), the ms since its last row, and the edges with an odd number of outstanding messages,
  # separated by commas. For other trees they are '', '', 0 and ''.
  # The command sees these local variables, so their names must not collide with its own.
  local _acker_for=${1:-} _acker_each _acker_words _acker_these _acker_all_said
  shift
  while acker_read "$_acker_for" 1 || return; do
    ((${#_acker_entries[@]})) || return 0
    _acker_these=("${_acker_entries[@]}") _acker_all_said=(${ACKER_OUTCOMES[@]+"${ACKER_OUTCOMES[@]}"})
    for _acker_each in ${_acker_all_said[@]+"${_acker_all_said[@]}"}; do
      # Tabs are blanks to `read`: it would skip empty fields.
      _acker_each=${_acker_each//$'\t'/$'\037'}
      IFS=$'\037' read -r -a _acker_words <<<"$_acker_each"
      # An entry with an outcome that was not handled is not taken, and is read again later.
      "$@" "${_acker_words[@]:0:9}" "${_acker_words[9]:-}" || return
    done
    _acker_entries=("${_acker_these[@]}")
    acker_take "$_acker_for" || return
  done
}

# A bolt

acker_process() { # MESSAGE..: begin to process a message, or several together; "" belongs to no tree
  local IFS=$' \t\n'
  local message pair anchor tuple seen=' ' own
  _acker_here || return
  _acker_inputs=() _acker_edges=() _acker_codes=() _acker_keys=() _acker_state='closed'
  for message; do
    own=' '
    while [[ -n ${message//[ $'\t']/} ]]; do
      pair=${message%%,*}
      case $message in
        *,) pair=$message message='' ;; # a trailing comma
        *,*) message=${message#*,} ;;
        *) message='' ;;
      esac
      if ! [[ $pair =~ ^[[:blank:]]*([0-9]{1,19}):([0-9]{1,19})[[:blank:]]*$ ]]; then
        pair=${pair:0:50}
        _acker_error REFUSED "an anchored tuple is <anchor>:<tuple>, not ${pair//[0-9]/#}"
        return
      fi
      local digits=("${BASH_REMATCH[@]}")
      _acker_anchor anchor "${digits[1]}" && _acker_tuple tuple "${digits[2]}" || return
      if [[ $own == *" $anchor:"* || $seen == *" $anchor:$tuple "* ]]; then
        _acker_error REFUSED "anchor $anchor occurs twice in one message id, or a message of this tree is given twice"
        return
      fi
      own+="$anchor:$tuple "
    done
    seen+=$own
    _acker_inputs+=("$own") _acker_edges+=(0)
  done
  _acker_state=open
}

acker_emit() { # [PLACE..] [--edge NAME] [--key TEXT]: a message id into ACKER_MESSAGE
  # The message is caused by all inputs, by some, or by none (-); places are numbered from 0. NAME is the edge
  # that it travels on. With --key the id is derived, so the same message processed again has the same children.
  local IFS=$' \t\n'
  local place places texts=() rest edge key code i attempt=0
  ACKER_MESSAGE=''
  _acker_open_work || return
  # Broken until the id is drawn: a script that continues without an id must not ack, because no row would
  # count that message.
  _acker_state=broken
  _acker_split '--edge --key' "$@" || return
  places=(${rest[@]+"${rest[@]}"})
  ((${#rest[@]})) || places=("${!_acker_inputs[@]}")
  [[ ${rest[*]-} == - ]] && places=()
  local -A distinct=() ids=()
  for place in ${places[@]+"${places[@]}"}; do
    if ! [[ $place =~ ^(0|[1-9][0-9]{0,4})$ && -n ${_acker_inputs[place]:-} && -z ${distinct[$place]:-} ]]; then
      _acker_error REFUSED "there is no input $place, or it is given twice; inputs are numbered from 0"
      return
    fi
    distinct[$place]=1
  done
  if ((${#key[@]})) && [[ -n ${_acker_keys[_$key]:-} ]]; then
    _acker_error REFUSED "key $key was already used for another message; give each child its own"
    return
  fi
  _acker_anchored ${places[@]+"${places[@]}"}
  if ((${#key[@]} && ${#places[@]})); then _acker_configured; else _acker_known_ids; fi || return
  _acker_code code "$edge" || return
  while :; do
    if ((${#key[@]})); then
      _acker_untraced _acker_derive_edges "$key" "$attempt" || { _acker_no_hash; return; }
    else
      _acker_draw ${#places[@]} "$_acker_low" || { _acker_error REDIS 'od cannot read /dev/urandom'; return; }
    fi
    ids=()
    for ((i = 0; i < ${#places[@]}; i++)); do
      for place in ${_acker_inputs[places[i]]}; do
        place=${place%:*}
        ids[$place]=$((${ids[$place]:-0} ^ _acker_ids[i]))
      done
    done
    [[ " ${ids[*]} " == *' 0 '* ]] || break # edge ids that cancel, with probability 2^-55
    attempt=$((attempt + 1))
  done
  ((${#key[@]} == 0)) || _acker_keys[_$key]=used
  # From here on the edge ids are in the rows, even if the script does not send the message.
  for ((i = 0; i < ${#places[@]}; i++)); do
    _acker_edges[places[i]]=$((_acker_edges[places[i]] ^ _acker_ids[i]))
  done
  ((code == 0)) || _acker_carry "$code"
  texts=()
  for i in "${!ids[@]}"; do texts+=("$i:${ids[$i]}"); done
  _acker_format ACKER_MESSAGE ${texts[@]+"${texts[@]}"}
  _acker_state=open
}

_acker_anchored() { # PLACE..: the inputs that belong to trees into `places`, and for a key their texts into `texts`
  local place text
  places=()
  for place; do
    [[ ${_acker_inputs[place]} == *:* ]] || continue
    places+=("$place")
    ((${#key[@]})) || continue
    _acker_format text ${_acker_inputs[place]}
    texts+=("$text")
  done
}

_acker_carry() { # CODE: add it to `ids`, and in each tree to the edge id of the input with the least id
  local place pair anchor
  local -A least=()
  for place in ${places[@]+"${places[@]}"}; do
    for pair in ${_acker_inputs[place]}; do
      anchor=${pair%:*}
      if [[ -z ${least[$anchor]:-} || ${pair#*:} -lt ${least[$anchor]#*:} ]]; then
        least[$anchor]=$place:${pair#*:}
      fi
    done
  done
  for anchor in "${!least[@]}"; do
    place=${least[$anchor]%:*}:$anchor
    _acker_codes[$place]=$((${_acker_codes[$place]:-0} ^ $1))
    ids[$anchor]=$((${ids[$anchor]} | $1))
  done
}

_acker_format() { # NAME PAIR..: store the text of a message id, its pairs in the order of the anchors
  local IFS=, _pair _i _sorted=()
  for _pair in "${@:2}"; do
    for ((_i = ${#_sorted[@]}; _i > 0; _i--)); do
      [[ ${_sorted[_i - 1]%:*} -gt ${_pair%:*} ]] || break
      _sorted[_i]=${_sorted[_i - 1]}
    done
    _sorted[_i]=$_pair
  done
  printf -v "$1" %s "${_sorted[*]-}"
}

acker_ack() { # ack the inputs; emit before
  local IFS=$' \t\n'
  _acker_end 0 ''
}

acker_fail() { # [WHY]: fail the trees of the inputs; they are nacked immediately
  local IFS=$' \t\n'
  local LC_ALL=C why=${1:-}
  why=${why//[$'\001'-$'\037'$'\177']/ }
  if ((${#why} > _acker_MAX_TEXT)); then
    local next=${why:_acker_MAX_TEXT:1}
    why=${why:0:_acker_MAX_TEXT}
    if [[ $next == [$'\200'-$'\277'] ]]; then # a character was cut in two
      while [[ $why == *[$'\200'-$'\277'] ]]; do why=${why%?}; done
      why=${why%?}
    fi
  fi
  _acker_text why "$why" 0 2>/dev/null || why='failed'
  _acker_end 2 "$why"
}

acker_touch() { # reset the timeout of the trees of the inputs
  local IFS=$' \t\n'
  _acker_end 4 ''
}

acker_flush() { # send the waiting rows; rows wait only if ACKER_BATCH is above 1
  local IFS=$' \t\n'
  _acker_here || return
  if [[ -n ${_acker_forked:-} ]] || ((${#_acker_order[@]})); then acker_apply; fi
}

_acker_open_work() {
  _acker_here || return
  case ${_acker_state:-closed} in
    open) ;;
    broken) _acker_error CLOSED 'acker_emit has failed: this message can be failed, but not acked' ;;
    *) _acker_error CLOSED 'no message is open: call acker_process first, in this process, once for each message' ;;
  esac
}

_acker_end() { # FLAGS WHY
  local i pair anchor order=()
  local -A of=()
  _acker_here || return
  [[ $1 == 2 && ${_acker_state:-closed} == broken ]] || _acker_open_work || return
  # Close the message even if the call fails: its rows may have been applied.
  (($1 == 4)) || _acker_state=closed
  for i in "${!_acker_inputs[@]}"; do
    for pair in ${_acker_inputs[i]}; do
      anchor=${pair%:*}
      [[ -n ${of[$anchor]:-} ]] || order+=("$anchor")
      of[$anchor]=$((${of[$anchor]:-0} ^ ${pair#*:} ^ _acker_edges[i] ^ ${_acker_codes[$i:$anchor]:-0}))
    done
  done
  for anchor in ${order[@]+"${order[@]}"}; do
    # Each row is complete, so the rows of a message may go into different batches.
    if ((${#_acker_order[@]} == _acker_MAX_ROWS || _acker_texts > _acker_MAX_TEXTS - _acker_MAX_TEXT)); then
      acker_apply || return
    fi
    case $1 in
      2) _acker_failed "$anchor" "${of[$anchor]}" "$2" || return ;;
      4) _acker_fold "$anchor" 0 4 '' || return ;;
      *) _acker_fold "$anchor" "${of[$anchor]}" 0 '' || return ;;
    esac
  done
  ((${#_acker_order[@]} < ACKER_BATCH)) || acker_flush
}

_acker_clear
