#!/bin/sh
# Fills a new folder with all files of the image:  docker/image.sh ROOT PREFIX
# They are the environment in PREFIX, its Python without what only developers import, time zones, a shell, and the
# libraries that these load. ADR 16 says why there is no base image.
set -eu
root=$1 prefix=$2
ask() { "$prefix/bin/python" -c "import sys, sysconfig; print($1)"; }
base=$(ask sys.base_prefix)
stdlib=$(ask 'sysconfig.get_path("stdlib")')
python=$base/bin/python$(ask 'sysconfig.get_python_version()')

mkdir "$root" "$root/bin" "$root/dev" "$root/etc" "$root/proc" "$root/sys" "$root/tmp"
chmod 1777 "$root/tmp"
cp --dereference /bin/sh /bin/cat /bin/ls /bin/rm "$root/bin"
cp "$(dirname "$0")/entrypoint.sh" "$root/bin"
printf '%s\n' root:x:0:0::/:/bin/sh tidelog:x:1000:1000::/var/lib/tidelog:/bin/sh >"$root/etc/passwd"
printf '%s\n' root:x:0: tidelog:x:1000: >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf" # without it DNS comes first, and /etc/hosts is not asked

tar --create --file "$root/tar" --directory / \
    "${prefix#/}" "${stdlib#/}" "${python#/}" "${base#/}/bin/python3" usr/share/zoneinfo
tar --extract --file "$root/tar" --directory "$root"
rm "$root/tar"
rm -rf "$root/usr/share/zoneinfo/posix" "$root/usr/share/zoneinfo/right"
(cd "$root$stdlib" && rm -rf site-packages config-* ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo \
    lib-dynload/_test* lib-dynload/_tkinter*)
find "$root" \( -name __pycache__ -o -name '*.py[xdi]' \) -prune -exec rm -rf {} +

# Symbols for debuggers are most of some libraries. What is stripped already stays as it is.
find "$root" -type f \( -name '*.so*' -o -path "$root$python" \) -exec strip --strip-unneeded {} +
find "$root" -type f \( -name '*.so*' -o -path "$root/bin/*" -o -path "$root$python" \) ! -name '*.sh' \
    -exec ldd {} + >"$root/ldd"
if grep 'not found' "$root/ldd"; then exit 1; fi
grep -o '/[^ ]*\.so[^ ]*' "$root/ldd" | grep -v "^$root/" | sort -u | while read -r library; do
    cp --dereference --parents "$library" "$root"
    strip --strip-unneeded "$root$library"
done
rm "$root/ldd"
cp /etc/ld.so.cache "$root/etc" # names the folder of libpython

# The broker may not write there, and without bytecode each command would take a second.
"$prefix/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / "$root$prefix" "$root$stdlib"
du --apparent-size --summarize --block-size=MB "$root"
