#!/bin/sh
# Certificates of a small fleet, with OpenSSL 3: certificates.sh FOLDER ROLE NAME [ROLE NAME ...]
# ROLE: controller or page (NAME: the host or address at which it is reached), agent (NAME: its node),
# operator or viewer. The authority is made once; run it again with the same folder for more.
set -eu
if [ $# -lt 3 ] || [ $(($# % 2)) = 0 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
umask 077
mkdir -p "$1"
cd "$1"
shift

key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
# shellcheck disable=SC2086  # several words each
[ -e ca.key ] || openssl req -x509 $key -days 3650 -subj /CN=everstep-ca -keyout ca.key -out ca.pem

while [ $# -gt 0 ]; do
    case $1 in
    controller) unit=operator file=controller ;;
    agent | operator | viewer | page) unit=$1 file=$2 ;;
    *) echo "certificates.sh: $1 is no role: controller, agent, operator, viewer or page" >&2 && exit 2 ;;
    esac
    kind=DNS
    case $2 in *:* | *[0-9].*[0-9].*[0-9].*[0-9]) kind=IP ;; esac
    # shellcheck disable=SC2086
    openssl req $key -subj "/OU=$unit/CN=$2" -addext "subjectAltName=$kind:$2" \
        -keyout "$file.key" -out "$file.csr"
    openssl x509 -req -in "$file.csr" -CA ca.pem -CAkey ca.key -days 365 -copy_extensions copy \
        -out "$file.pem"
    rm "$file.csr"
    shift 2
done
