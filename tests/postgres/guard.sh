#!/bin/sh
# usage: guard.sh FOLDER <PIPE
# Waits for the end of file on the pipe, which comes when its only writer, a test, has ended in whatever
# way. Then ends what was still starting a server in FOLDER (FOLDER/starting has its process group) and
# every server whose data are there, and removes FOLDER.
cat >/dev/null
folder=$1

is_server() { [ "$(readlink "/proc/$pid/cwd")" = "$data" ]; }

end_servers() {
    for file in "$folder"/*/postmaster.pid; do
        [ -f "$file" ] || continue
        read -r pid <"$file" || continue
        data=${file%/*}
        is_server && kill -QUIT "$pid"
        while is_server; do sleep 0.1; done
    done
}

starting=$(cat "$folder/starting" 2>/dev/null)
[ -z "$starting" ] || kill -KILL -- "-$starting"
end_servers
rm -rf "$folder"
# A server that was in its first moments has no file yet; it ends by itself as its folder is gone.
if [ -n "$starting" ]; then
    sleep 1
    end_servers
    rm -rf "$folder"
fi
