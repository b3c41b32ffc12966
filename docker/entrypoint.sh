#!/bin/sh
# Starts the broker in a container; arguments go to `tidelog serve`.
# Options come as in the apache/kafka image: from KAFKA_* variables, over a server.properties where one is mounted.
set -eu
config=${TIDELOG_CONFIG:-/etc/tidelog/server.properties}
ready=${TIDELOG_READY_FILE:-/tmp/tidelog.ready}

if [ -f "$config" ]; then
    set -- --config-file "$config" "$@"
else
    if [ -z "${KAFKA_LISTENERS:-}" ]; then
        export KAFKA_LISTENERS=PLAINTEXT://:9092
        # `docker run -p 9092:9092` is for clients on the host; compose.yaml serves other containers as well.
        export KAFKA_ADVERTISED_LISTENERS="${KAFKA_ADVERTISED_LISTENERS:-PLAINTEXT://localhost:9092}"
    fi
    [ -n "${KAFKA_LOG_DIR:-}${KAFKA_LOG_DIRS:-}" ] || export KAFKA_LOG_DIR=/var/lib/tidelog
fi

rm -f "$ready" # a container that is started again must not look healthy before it is
exec tidelog serve --ready-file "$ready" "$@"
