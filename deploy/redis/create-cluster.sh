#!/bin/sh
# Make one cluster of some empty nodes, three masters and the rest replicas; again, it changes nothing.
#   create-cluster.sh PASSWORD_FILE HOST:PORT HOST:PORT ...     (addresses, not names)
set -eu

REDISCLI_AUTH=$(cat "$1")
export REDISCLI_AUTH
shift

info() {
  redis-cli -h "${1%:*}" -p "${1##*:}" --user cluster cluster info | tr -d '\r'
}

if ! info "$1" | grep -q '^cluster_known_nodes:1$'; then
  echo "there is a cluster already"
else
  redis-cli --user cluster --cluster create "$@" --cluster-replicas 1 --cluster-yes
fi

# Done is when every node says so: until then clients are refused.
for node in "$@"; do
  tries=0
  until info "$node" | grep -q '^cluster_state:ok$'; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || { echo "$node does not come up; see its log" >&2; exit 1; }
    sleep 1
  done
done
echo "the cluster is up"
