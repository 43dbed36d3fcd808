#!/bin/sh
# Create a random password for each user of docker-compose.yml, and an ACL file with the hashes.
# Idempotent: existing passwords stay. Run it again after an update of deploy/acl/users.acl.
#   deploy/secrets.sh [DIRECTORY]        default: deploy/secrets
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/secrets}

draw() { # 192 bits, as hex
  [ -s "$folder/$1" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$1"
}

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

# Only its owner can read the folder. The files in it must be readable by the users inside the
# containers, because compose mounts secrets with their file permissions.
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
echo '*' >"$folder/.gitignore"

for name in api_token api_metrics_token grafana_password; do
  draw "$name"
done

while IFS= read -r line; do
  name=${line#user }
  name=${name%% *}
  case $line in
    "user $name reset on "*)
      draw "${name}_password"
      hash=$(sha256 <"$folder/${name}_password")
      printf '%s\n' "user $name reset on #$hash ${line#"user $name reset on "}"
      ;;
    *) printf '%s\n' "$line" ;;
  esac
done <"$here/acl/users.acl" >"$folder/users.acl.new"
mv "$folder/users.acl.new" "$folder/users.acl"
printf 'masteruser replica\nmasterauth %s\n' "$(cat "$folder/replica_password")" >"$folder/replica.conf"

# Compose reads .env. Without this variable compose prints: run deploy/secrets.sh first.
if [ $# -eq 0 ]; then
  settings=$here/../.env
  if ! grep -qs '^ACKER_REDIS_SECRETS=' "$settings"; then
    echo 'ACKER_REDIS_SECRETS=./deploy/secrets' >>"$settings"
  fi
fi
echo "$folder: secrets are complete; restart redis to load a changed users.acl"
