#!/bin/sh
# etcd, and an API server, controllers and a scheduler built from Debian's source package of Kubernetes, into a folder: for a
# machine that reaches Debian's packages and neither a registry of containers nor a release. Nothing is installed.
#   sh tests/cluster/build.sh .control-plane
set -eu
mkdir -p "$1"
target=$(realpath "$1")
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

mkdir -p lists/partial cache/archives/partial
touch status
cat > sources.list <<END
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
END
cat > apt.conf <<END
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
apt-get update
apt-get download etcd-server golang-1.19-go golang-1.19-src rsync libpopt0 libxxhash0
for package in *.deb; do dpkg-deb --extract "$package" programs; done
apt-get source --download-only kubernetes
mkdir kubernetes
tar --extract --file kubernetes_*.orig.tar.gz --directory kubernetes --strip-components=1
release=$(sed -n 's/^Version: .*really\([0-9.]*\)-.*/\1/p' kubernetes_*.dsc)

cd kubernetes
export GOROOT="$work/programs/usr/lib/go-1.19" GOPATH="$PWD/.go" GOCACHE="$work/cache/go" CGO_ENABLED=0
export PATH="$GOROOT/bin:$work/programs/usr/bin:$PATH" LD_LIBRARY_PATH="$work/programs/usr/lib/$(uname -m)-linux-gnu"
export KUBE_GIT_VERSION="v$release" KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive
export KUBE_GIT_MAJOR="${release%%.*}" KUBE_GIT_MINOR="$(echo "$release" | cut -d. -f2)"
mkdir -p .go/src/k8s.io
ln -s ../../.. .go/src/k8s.io/kubernetes
make WHAT="cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler"
cp _output/local/bin/linux/*/kube-* "$target"
cp "$work/programs/usr/bin/etcd" "$target"
"$target/kube-apiserver" --version
