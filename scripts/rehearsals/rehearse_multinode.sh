#!/bin/bash
# Rehearse `deepspeed --num_nodes N bigtrk/train.py` on N hosts made of network namespaces, one
# sshd and one rank each; then compare the losses with the single-host run.
#
#   scripts/rehearsals/rehearse_multinode.sh [--nodes 8] [--install]
#
# Needs root on Linux, and sshd, ssh, pdsh and ip; --install gets what is missing with apt-get.
# The hosts' ssh keys and configuration are theirs alone; all is removed at the end.
# The last line is JSON: {"nodes", "ranks", "steps", "max_relative_difference", "seconds"}.
source "$(dirname "${BASH_SOURCE[0]}")/rehearsal.sh"
source "$checkout/scripts/rehearsals/rehearsal_hosts.sh"

nodes=8
while (($#)); do
    case $1 in
        --nodes) nodes=${2:?--nodes needs a number}; shift ;;
        --install) install=yes ;;
        *) fail "unknown option $1; known: --nodes N, --install" ;;
    esac
    shift
done
[[ $nodes =~ ^[0-9]+$ ]] && ((nodes >= 2 && nodes <= 200)) || fail "--nodes $nodes: give 2 to 200"
need_root
need sshd=openssh-server ssh=openssh-client pdsh=pdsh ip=iproute2

# What passwordless ssh between the hosts takes; the launcher calls plain `ssh HOST hostname`.
write_ssh() {
    local ssh=$work/etc/ssh
    mkdir -p "$ssh" /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$ssh/key"
    cp "$ssh/key.pub" "$ssh/authorized_keys"
    cat >"$ssh/sshd_config" <<END
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
StrictModes no
PidFile none
END
    cat >"$ssh/ssh_config" <<END
IdentityFile /etc/ssh/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
}

mapfile -t names < <(seq --format 'node%g' "$nodes")
make_events "$nodes"
settings+=(training.epochs=3)
train_on_one_host engine.name=deepspeed

write_ssh
start_hosts "${names[@]}"
for name in "${names[@]}"; do on "$name" /usr/sbin/sshd; done
printf '%s slots=1\n' "${names[@]}" >hostfile
cat >.deepspeed_env <<END
DS_ACCELERATOR=cpu
GLOO_SOCKET_IFNAME=eth0
END
start=$SECONDS
DS_ACCELERATOR=cpu attend on node1 deepspeed --hostfile hostfile --num_nodes "$nodes" \
    "$checkout/bigtrk/train.py" "${settings[@]}" engine.name=deepspeed \
    run.folder=many-hosts >&2
compare many-hosts "$nodes" $((SECONDS - start))
