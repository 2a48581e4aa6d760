# Sourced by the rehearsals that need several hosts: each is a network, process and host-name
# namespace with its own address, /etc/hosts, /dev/shm and local disk ($work/local). They meet on
# a bridge in a namespace of its own, so nothing shows in the machine's own network, and nothing
# leaves them.
# shellcheck shell=bash

switch=bigtrk-$$-switch
spaces=()
# Process 1 of each host, by host name.
declare -A host_pid=()
# It collects the processes that others leave behind, as an init does; at its end all are killed.
process_1='trap exit TERM; hostname "$0"
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs "$1"
while :; do sleep 60 & wait; done'

# start_hosts NAME...: 10.86.0.1 is the first. What $work/etc holds covers /etc on each of them.
start_hosts() {
    local name number=0
    mkdir -p "$work/etc" "$work/local"
    echo "127.0.0.1 localhost" >"$work/etc/hosts"
    for name in "$@"; do echo "10.86.0.$((++number)) $name" >>"$work/etc/hosts"; done
    cleanups+=(stop_hosts)
    spaces+=("$switch")
    ip netns add "$switch"
    ip -netns "$switch" link add bridge type bridge
    ip -netns "$switch" link set bridge up
    number=0
    for name in "$@"; do start_host "$name" "10.86.0.$((++number))"; done
}

start_host() {
    local name=$1 address=$2 space=bigtrk-$$-$1 parent
    spaces+=("$space")
    ip netns add "$space"
    # `ip netns exec` covers /etc with what is found here.
    mkdir -p /etc/netns
    cp -r "$work/etc" "/etc/netns/$space"
    ip link add eth0 netns "$space" type veth peer name "$name" netns "$switch"
    ip -netns "$switch" link set "$name" master bridge up
    ip -netns "$space" address add "$address/24" dev eth0
    ip -netns "$space" link set lo up
    ip -netns "$space" link set eth0 up
    ip netns exec "$space" unshare --uts --ipc --pid --fork --mount-proc \
        bash -c "$process_1" "$name" "$work/local" &
    parent=$!
    until host_pid[$name]=$(pgrep --parent "$parent"); do sleep 0.1; done
    until [[ $(on "$name" hostname) == "$name" ]]; do sleep 0.1; done
}

# on HOST COMMAND...
on() {
    local name=$1
    shift
    nsenter --target "${host_pid[$name]}" --mount --uts --ipc --net --pid --wd="$PWD" "$@"
}

stop_hosts() {
    local name space
    for name in "${!host_pid[@]}"; do kill "${host_pid[$name]}" || true; done
    for space in "${spaces[@]}"; do
        ip netns del "$space" || true
        rm -rf "/etc/netns/$space"
    done
}
