# shellcheck shell=bash
# Sourced by build.sh and tree.sh: the root of a sandbox, unpacked from this machine's own Debian packages. They stand
# in this directory and define die.

common=base-files,base-passwd,libc-bin,dash,bash,coreutils,grep,sed,findutils,diffutils,tar,gzip,mawk,util-linux,procps,debianutils,patch,ca-certificates,curl,hostname
# What scripts and people expect to find; wheels of PyPI load libstdc++6. A compiler would be three quarters of all of it.
tools=bzip2,file,jq,less,libstdc++6,make,nano,unzip,wget,xz-utils,zip

# packages_of lists what the image of a template holds. Debian's npm is four hundred packages, and a sandbox without a
# network has little use of it.
packages_of() {
	local python=python3,python3-pip,python3-venv
	local screen=chromium,xvfb,x11vnc,novnc,websockify,openbox,xauth,x11-xkb-utils,xkb-data,fonts-dejavu-core,fonts-liberation,fontconfig
	local editor=git,ripgrep,libstdc++6,libgssapi-krb5-2
	case $1 in
	base) echo "$common" ;;
	python) echo "$common,$tools,$python,git" ;;
	node) echo "$common,$tools,nodejs,git" ;;
	data-science) echo "$common,$tools,$python,git,python3-numpy,python3-pandas,python3-scipy,python3-matplotlib" ;;
	browser) echo "$common,$python,$screen" ;;
	code-server) echo "$common,$python,$editor" ;;
	claude-code | codex) echo "$common,$tools,$python,git,ripgrep" ;;
	cloud) echo "$common,$tools,$python,git,kubernetes-client" ;;
	all-in-one) echo "$common,$tools,$python,$screen,$editor" ;;
	*) return 1 ;;
	esac
}
own_dir=${template:-python} # of a template that has more than packages
packages=$(packages_of "$own_dir") || die "no recipe for the template $own_dir; there are base, python, node, data-science, browser, code-server, claude-code, codex, cloud and all-in-one"
# shellcheck disable=SC2034 # for those who source this
environment=(PATH=/workspace/.local/bin:/usr/local/bin:/usr/bin:/bin HOME=/workspace LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1)

# The directories whose recipes make up the image, in order.
parts=()
[ "$own_dir" != all-in-one ] || parts=(browser code-server)
[ ! -d "$own_dir" ] || parts+=("$own_dir")

# recipe is the same as long as nothing that decides over the content has changed.
recipe() {
	{
		cat build.sh debian.sh rootfs.sh
		[ ${#parts[@]} = 0 ] || cat fetch.sh requirements.txt
		local part
		for part in "${parts[@]}"; do cat "$part"/*; done
	} | sha256sum | cut -c1-16
}

# debian_suite says which release this machine is.
debian_suite() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# Roots are kept under the hash of what made them, for two weeks after their last use.
kept=${XDG_CACHE_HOME:-$HOME/.cache}/sandyard/roots

# debian_tar writes the root to the file $1, from the cache unless FORCE=1.
debian_tar() {
	local this draft
	this=$kept/$own_dir-$(debian_suite)-$(recipe).tar
	if [ "${FORCE:-0}" = 1 ] || ! [ -e "$this" ]; then
		unpack_packages "$1"
		mkdir -p "$kept" && draft=$(mktemp "$kept/.draft-XXXXXX") && cp "$1" "$draft" && mv -T "$draft" "$this"
		find "$kept" -type f -mtime +14 -delete
		return
	fi
	touch "$this"
	ln -s "$this" "$1"
}

# unpack_packages makes the root anew.
unpack_packages() {
	local suite sources=() log
	suite=$(debian_suite)
	[ -n "$suite" ] || die "this system is not Debian or a derivative"
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
		[ -s "$file" ] && sources+=("$file")
	done
	log=$1.log
	unpack "$suite" "$1" "${sources[@]}" >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "mmdebstrap ended with an error"; }
}

# The extract variant only unpacks: no maintainer scripts, no dpkg database, a third of the time and the size.
unpack() {
	local suite=$1 to=$2 own=() part
	shift 2
	for part in "${parts[@]}"; do own+=(--extract-hook="bash '$PWD/$part/rootfs.sh' \"\$1\""); done
	mmdebstrap --quiet --variant=extract --include="$packages" \
		--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
		--aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
		--skip=cleanup/apt --skip=check/empty \
		--extract-hook="bash '$PWD/rootfs.sh' \"\$1\"" "${own[@]}" \
		"$suite" "$to" "$@"
}
