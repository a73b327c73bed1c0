#!/usr/bin/env bash
# One Cassandra on loopback, for tests and trials: examples/cassandra/cassandra.sh start|stop|kill|fetch FOLDER
#
#   start   starts it with its data in FOLDER, waits until it answers CQL, and prints its address; data that are there are kept
#   stop    ends it, and waits until it has ended
#   kill    ends it at once, as a crash of the process does
#   fetch   only gets what it needs from Maven Central (66 MB, kept in Maven's own folder); needs no FOLDER
#
# With CASSANDRA_TLS=1, connections with TLS are taken beside those without; FOLDER/authority.pem is what to trust then.
# Several are one cluster of several data centers: CASSANDRA_PLACE is the name of this one's data center (datacenter1), CASSANDRA_HOST its address (127.0.0.1; 127.0.0.2 is another), and
# CASSANDRA_SEED the folder of one that runs already.
# CASSANDRA_WITH is the number of a process: when that has ended, Cassandra is killed, and FOLDER deleted.
# Needs a JDK 17 (or 11) and Maven; exits with 77 where they are not there. CASSANDRA_HEAP is its memory (512M), CASSANDRA_START_SECONDS how long a start may take (120);
# with CASSANDRA_TIERS=1 it is compiled less well, and starts sooner.
# It listens without passwords, so only on loopback. FOLDER/cassandra.yaml is what it was configured with, FOLDER/log what it said.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
lacks() { echo "cassandra: not started, for want of $1" >&2; exit 77; }
host=${CASSANDRA_HOST:-127.0.0.1}
case $host in 127.*) ;; *) echo "cassandra: CASSANDRA_HOST is an address of loopback: 127.0.0.1" >&2; exit 2 ;; esac
command=${1:-}
folder=${2:-}
case $command in
  start | stop | kill) [ -n "$folder" ] || usage ;;
  fetch) ;;
  *) usage ;;
esac

# The jars, in an order of their own; from Maven's folder, so that nothing is fetched twice. Which they are is kept there, too: Maven takes longer to say it than Cassandra's files to be found.
classpath() {
  command -v java > /dev/null || lacks "Java 17"
  [[ $(java -version 2>&1) =~ version\ \"(11|17)[.\"] ]] || lacks "Java 17 or 11 (Cassandra 5.0 runs on no other)"
  command -v mvn > /dev/null || lacks "Maven"
  local file=$1 known
  [ ! -s "$file" ] || return 0
  known=${HOME:-/tmp}/.m2/rheostat-cassandra-$(cksum < "$here/pom.xml" | cut -d ' ' -f 1).classpath
  if [ -s "$known" ] && (IFS=: && for jar in $(cat "$known"); do [ -s "$jar" ] || exit 1; done); then
    cp "$known" "$file"
    return
  fi
  mvn -B -q -Dstyle.color=never -f "$here/pom.xml" dependency:build-classpath -Dmdep.outputFile="$file" > "$file.log" 2>&1 \
    || { tail -n 5 "$file.log" >&2; lacks "what it needs from Maven Central"; }
  # Where that cannot be kept, Maven is asked again.
  { cp "$file" "$known.$$" && mv "$known.$$" "$known"; } 2> /dev/null || true
}

# A process that is there and is not a zombie.
alive() { [ -r "/proc/$1/stat" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 1)" != Z ]; }

end() {
  local pid=${2:-}
  [ -n "$pid" ] || { [ -s "$folder/pid" ] && pid=$(cat "$folder/pid"); } || return 0
  # The number may be another's by now.
  if alive "$pid" && tr '\0' '\n' < "/proc/$pid/cmdline" | grep -xF -- "-Dcassandra.storagedir=$folder/data" > /dev/null; then
    kill "$1" "$pid"
    for _ in {1..300}; do
      alive "$pid" || break
      sleep 0.1
    done
    ! alive "$pid" || { echo "cassandra: process $pid does not end" >&2; exit 1; }
  fi
  rm -f "$folder/pid"
}

# Sets port and storage: two that nobody listens at. One that starts at the same time has other ones, since its number is another: it takes long until they are listened at. Tests take theirs
# from 10000 on.
free_ports() {
  local pair
  for ((pair = $$; pair < $$ + 100; pair++)); do
    port=$((8000 + 2 * (pair % 1000))) storage=$((8001 + 2 * (pair % 1000)))
    (: < "/dev/tcp/$host/$port") 2> /dev/null || (: < "/dev/tcp/$host/$storage") 2> /dev/null || return 0
  done
  echo "cassandra: no free ports from 8000 to 9999" >&2
  exit 1
}

# Outlives the start.
watch() {
  trap '' HUP INT
  while alive "$CASSANDRA_WITH"; do sleep 0.5; done
  # The folder may be gone already.
  end -KILL "$pid"
  rm -rf "$folder"
}

# A certificate of its own, for its address.
encryption() {
  local with=(-alias cassandra -storetype PKCS12 -keystore "$folder/keystore" -storepass cassandra)
  command -v keytool > /dev/null || lacks "keytool, which comes with Java"
  if ! [ -s "$folder/authority.pem" ]; then
    rm -f "$folder/keystore"
    keytool -genkeypair "${with[@]}" -keyalg EC -groupname secp256r1 -dname "CN=$host" -ext "san=ip:$host" -validity 365 > "$folder/keytool.log" 2>&1
    keytool -exportcert -rfc "${with[@]}" > "$folder/authority.pem" 2>> "$folder/keytool.log"
  fi
  cat >> "$folder/cassandra.yaml" << YAML
client_encryption_options:
  enabled: true
  optional: true
  keystore: $folder/keystore
  keystore_password: cassandra
  store_type: PKCS12
  require_client_auth: false
YAML
}

start() {
  mkdir -p "$folder"
  folder=$(cd "$folder" && pwd)
  ! { [ -s "$folder/pid" ] && alive "$(cat "$folder/pid")"; } || { echo "cassandra: it runs in $folder, or another has its number: stop it first" >&2; exit 1; }
  classpath "$folder/classpath"
  # The same after a restart: whoever was connected finds it again.
  local port storage
  if [ -s "$folder/port" ] && [ -s "$folder/storage-port" ]; then
    port=$(cat "$folder/port") storage=$(cat "$folder/storage-port")
  else
    # Those of one cluster listen at one port, on an address each.
    if [ -n "${CASSANDRA_SEED:-}" ]; then
      port=$(cat "$CASSANDRA_SEED/port") storage=$(cat "$CASSANDRA_SEED/storage-port")
    else
      free_ports
    fi
    echo "$port" > "$folder/port"
    echo "$storage" > "$folder/storage-port"
  fi
  local seed=$host
  [ -z "${CASSANDRA_SEED:-}" ] || seed=$(cat "$CASSANDRA_SEED/host")
  echo "$host" > "$folder/host"
  printf 'dc=%s\nrack=rack1\n' "${CASSANDRA_PLACE:-datacenter1}" > "$folder/cassandra-rackdc.properties"
  cat > "$folder/cassandra.yaml" << YAML
cluster_name: rheostat
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
listen_address: $host
rpc_address: $host
start_native_transport: true
native_transport_port: $port
storage_port: $storage
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "$seed:$storage"
endpoint_snitch: GossipingPropertyFileSnitch
# A write is acknowledged when it is on disk. The default, periodic, takes back what was acknowledged in the last 100 ms when the process is killed, and 10 s when the power
# fails: that is for several replicas, not for one.
commitlog_sync: batch
commitlog_segment_size: 32MiB
commitlog_total_space: 256MiB
memtable_heap_space: 96MiB
memtable_offheap_space: 96MiB
file_cache_size: 32MiB
key_cache_size: 16MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
auto_snapshot: false
hinted_handoff_enabled: false
YAML
  [ -z "${CASSANDRA_TLS:-}" ] || encryption
  cat > "$folder/logback.xml" << 'XML'
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT" /></root>
  <logger name="org.apache.cassandra.transport.Server" level="INFO" />
</configuration>
XML
  local jamm exports=() opens=() each
  jamm=$(tr ':' '\n' < "$folder/classpath" | grep '/jamm-[0-9.]*\.jar$')
  for each in java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry \
    java.rmi/sun.rmi.server java.sql/java.sql java.base/java.lang.ref java.base/java.lang.reflect java.rmi/sun.rmi.transport.tcp jdk.unsupported/sun.misc \
    jdk.attach/sun.tools.attach java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal; do
    exports+=(--add-exports "$each=ALL-UNNAMED")
  done
  for each in java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.net java.base/java.nio java.base/java.util \
    java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module \
    java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.base/sun.nio.ch jdk.compiler/com.sun.tools.javac.file \
    jdk.management/com.sun.management.internal jdk.management.agent/jdk.internal.agent; do
    opens+=(--add-opens "$each=ALL-UNNAMED")
  done
  # Shorter waits than among many machines: there is nobody else to wait for.
  setsid java "${exports[@]}" "${opens[@]}" -javaagent:"$jamm" \
    -Xms"${CASSANDRA_HEAP:-512M}" -Xmx"${CASSANDRA_HEAP:-512M}" -XX:+UseSerialGC -XX:TieredStopAtLevel="${CASSANDRA_TIERS:-4}" -Xss512k -XX:+ExitOnOutOfMemoryError \
    -Djdk.attach.allowAttachSelf=true -Djava.net.preferIPv4Stack=true -Dio.netty.tryReflectionSetAccessible=true -Dcassandra.disable_auth_caches_remote_configuration=true \
    -Dcassandra-rackdc.properties="file://$folder/cassandra-rackdc.properties" \
    -Dcassandra.config="file://$folder/cassandra.yaml" -Dcassandra.storagedir="$folder/data" -Dcassandra.logdir="$folder" -Dlogback.configurationFile="file://$folder/logback.xml" \
    -Dcassandra-foreground=yes -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms="${CASSANDRA_SEED:+500}0" -Dcassandra.superuser_setup_delay_ms=0 -Dcassandra.available_processors=2 \
    -cp "$(cat "$folder/classpath")" org.apache.cassandra.service.CassandraDaemon < /dev/null > "$folder/log" 2>&1 &
  echo $! > "$folder/pid"
  local pid=$!
  for ((waited = 0; waited < ${CASSANDRA_START_SECONDS:-120} * 5; waited++)); do
    if (: < "/dev/tcp/$host/$port") 2> /dev/null; then
      # In a shell of its own, so that nothing of whoever called stays open.
      if [ -n "${CASSANDRA_WITH:-}" ]; then (exec < /dev/null > /dev/null 2>&1 && watch) & fi
      echo "$host:$port"
      return
    fi
    alive "$pid" || break
    sleep 0.2
  done
  tail -n 20 "$folder/log" >&2
  echo "cassandra: it does not answer on port $port" >&2
  end -KILL
  exit 1
}

case $command in
  start) start ;;
  fetch)
    file=$(mktemp)
    rm "$file"
    classpath "$file"
    rm -f "$file" "$file.log"
    ;;
  stop | kill)
    [ -d "$folder" ] || exit 0
    folder=$(cd "$folder" && pwd)
    [ "$command" = stop ] && end -TERM || end -KILL
    ;;
esac
