#!/bin/sh
# Create a cluster of empty nodes, one replica per master. Idempotent: a second run changes nothing.
#   create-cluster.sh PASSWORD_FILE HOST:PORT HOST:PORT ...     (addresses, not names)
set -eu

REDISCLI_AUTH=$(cat "$1")
export REDISCLI_AUTH
shift

info() {
  redis-cli -h "${1%:*}" -p "${1##*:}" --user cluster cluster info | tr -d '\r'
}

if ! info "$1" | grep -q '^cluster_known_nodes:1$'; then
  echo "the cluster exists already; nothing was changed"
else
  redis-cli --user cluster --cluster create "$@" --cluster-replicas 1 --cluster-yes
fi

# Wait until every node reports the state ok: until then nodes refuse clients.
for node in "$@"; do
  tries=0
  until info "$node" | grep -q '^cluster_state:ok$'; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || { echo "$node: cluster_state is not ok after 60 s; read its log" >&2; exit 1; }
    sleep 1
  done
done
echo "the cluster is up"
