# shellcheck shell=sh disable=SC2154,SC2034 # $program is the script's
# For scripts that test a program: a folder that goes away, what the program prints, its exit status.
# Sourced with $program, its path, and $folder, which is made; clean_up() is the script's own.
program_name=$(basename "$program")
folder=$(mktemp -d)
trap clean_up EXIT
trap 'exit 1' HUP INT TERM # or nothing would end what runs in the background

fail() {
    echo "test.sh: $1" >&2
    for file in out err; do
        [ ! -s "$folder/$file" ] || sed "s/^/  $file: /" "$folder/$file" >&2
    done
    exit 1
}

# Runs the program, output to files, and compares its exit status.
expect() { # STATUS ARGUMENT...
    wanted=$1
    shift
    got=0
    "$program" "$@" >"$folder/out" 2>"$folder/err" || got=$?
    [ "$got" -eq "$wanted" ] || fail "$program_name $*: exit status $got, not $wanted"
}

prints() { # WHERE PATTERN
    grep -Eq -e "$2" "$folder/$1" || fail "nothing like \"$2\" on $1"
}

is_json() {
    python3 -m json.tool <"$1" >/dev/null || fail "$1 is no JSON"
}

# A table, served as a server of PostgreSQL does, by the helper: $token, until end_helper.
helper=''
start_table() { # HELPER
    mkfifo "$folder/to_table" "$folder/from_table"
    "$1" <"$folder/to_table" >"$folder/from_table" &
    helper=$!
    exec 3>"$folder/to_table"
    read -r token <"$folder/from_table" || fail 'the table could not be served'
}

end_helper() {
    exec 3>&-
    wait "$helper" || fail 'the helper failed'
    helper=''
}
