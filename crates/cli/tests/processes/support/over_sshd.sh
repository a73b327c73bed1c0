# In a network namespace of its own: a real sshd at 127.0.0.2, and a cluster with one node there.
# Arguments: an empty folder, sshd, rheostat.
set -eu
folder=$1 sshd=$2 rheostat=$3
ip link set lo up
# sshd wants a user of its own, which this machine need not have.
cp /etc/passwd "$folder/passwd"
grep -q '^sshd:' /etc/passwd || echo 'sshd:x:995:65534::/run/sshd:/usr/sbin/nologin' >> "$folder/passwd"
mount --bind "$folder/passwd" /etc/passwd
mount -t tmpfs tmpfs /run
mkdir /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
ssh-keygen -q -t ed25519 -N '' -f "$folder/id"
cat > "$folder/sshd_config" <<CONFIG
Port 2222
ListenAddress 127.0.0.2
HostKey $folder/host
AuthorizedKeysFile $folder/id.pub
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
PidFile $folder/sshd.pid
CONFIG
"$sshd" -f "$folder/sshd_config" -E "$folder/sshd.log"
trap 'kill $(cat "$folder/sshd.pid")' EXIT
cat > "$folder/far.toml" <<FILE
cluster = "far"
base_port = 9300
[[data_center]]
name = "here"
[[data_center]]
name = "there"
host = "127.0.0.2"
[[keyspace]]
name = "default"
protocol = "causal"
[host."127.0.0.2"]
ssh = "root@127.0.0.2"
ssh_options = ["Port=2222", "IdentityFile=$folder/id", "StrictHostKeyChecking=accept-new", "UserKnownHostsFile=$folder/known"]
folder = "$folder/far away"
rheostat = "$rheostat"
FILE
cd "$folder"
"$rheostat" ctl cluster up far.toml
printf 'put k over-ssh\nconnect 127.0.0.2:9311\nget k\n' | "$rheostat" ctl shell 127.0.0.1:9301
timeout 2 "$rheostat" ctl cluster logs far.toml there-1 --follow || true
"$rheostat" ctl cluster down far.toml
sed -i "s|IdentityFile=$folder/id|IdentityFile=$folder/none|" far.toml
"$rheostat" ctl cluster status far.toml 2>&1 || echo "exit code $?"
