#!/bin/sh
# The main job on a DGX-1, end to end: `make demo`. Every line that starts with `$` is a command
# that a user can type; the demo only types them.
weft=${1:-weft} folder=build/demo code=0
run() {
    printf '\n$ weft %s\n' "$*"
    "$weft" "$@" || code=1
}
rm -rf "$folder" && mkdir -p "$folder"
run topo show dgx1
for collective in allgather alltoall broadcast allreduce; do
    run bound -t dgx1 -c $collective
    run synth -t dgx1 -c $collective -o "$folder/$collective"
done
for schedule in "$folder"/*/*.json; do
    [ -e "$schedule" ] || continue
    run compile "$schedule" --to msccl-xml -o "${schedule%.json}.xml"
    run run "${schedule%.json}.xml" --on numpy
done
printf '\n%s MSCCL XML files, checked and executed, are in %s/\n' \
    "$(ls "$folder"/*/*.xml | wc -l)" "$folder"
exit $code
