#!/bin/busybox sh
# First process of the virtual machine: sees the host's files as they are, or a root among them, and writes to memory only, but for what was
# shared for it.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do
    insmod /modules/$module
done
fail() {
    echo "vm: $1"
    poweroff -f
}
mount -t virtiofs -o ro host /files || fail "the host's files are not there"
mkdir /out
mount -t virtiofs out /out || fail "no place for results"
mount -o bind "/files$(cat /out/root)" /host || fail "the root is not there"
number=0
while read -r folder; do
    number=$((number + 1))
    mkdir /seen$number
    mount -o bind "/files$folder" /seen$number || fail "$folder is not there"
done </out/seen
for place in tmp run var/tmp; do
    mount -t tmpfs tmpfs /host/$place
done
number=0
while read -r folder; do
    number=$((number + 1))
    mkdir -p "/host$folder"
    mount -o bind /seen$number "/host$folder" || fail "$folder cannot be shown"
done </out/seen
mount -o bind /proc /host/proc
mount -o bind /sys /host/sys
mount -o bind /dev /host/dev
mkdir -p /dev/pts /dev/shm /host/tmp/out
mount -o bind /out /host/tmp/out
mount -t devpts devpts /host/dev/pts
mount -t tmpfs tmpfs /host/dev/shm
mount -t bpf bpf /host/sys/fs/bpf
targets=$(cat /out/targets)
mount -t virtiofs targets "/host$targets" || fail "no place for the tests' targets"
ip link set lo up
OUT=/tmp/out HOME=/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot /host /bin/bash /tmp/out/script
poweroff -f
