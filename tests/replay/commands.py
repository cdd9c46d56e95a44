"""The list of whole commands that a replay runs, in one folder, each with all that it writes.

A path that an earlier command makes, or that lies in ``in/`` (a copy of ``inputs/``), is named as
it is; the order of a run follows from that. No search here ends by its clock: every budget is many
times what the question takes, so ``--time`` decides nothing.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

MAKING = ("-o", "--output", "--log", "--trace", "--machine", "--cache")
"""Options whose value is a path that the command writes."""

Compared = Literal["all", "words", "exit"]
"""What counts: of those that measure no numbers, or where they decide more, only the exit code."""


@dataclass(frozen=True)
class Command:
    """One command line: what it is called, and what of it is compared."""

    name: str
    line: str
    makes: tuple[str, ...] = ()  # written beside the values of MAKING
    stdin: str = ""  # a path
    stdout: str = ""  # a path that gets what it prints, for later commands
    compared: Compared = "all"

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The words after ``weft``."""
        return tuple(shlex.split(self.line))

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files and folders that it writes."""
        pairs = zip(self.argv, self.argv[1:], strict=False)
        found = [value.rstrip("/") for flag, value in pairs if flag in MAKING and value != "-"]
        return (*found, *self.makes, *((self.stdout,) if self.stdout else ()))

    def names(self, path: str) -> bool:
        """Tell if it names a path, or something below it, among its words."""
        words = (*self.argv, self.stdin)
        return any(re.search(rf"(^|[,=]){re.escape(path)}($|[/:,{{}}])", word) for word in words)


def needs(commands: tuple[Command, ...]) -> dict[str, set[str]]:
    """For each command the names of those before it that touch a path of its own."""
    found: dict[str, set[str]] = {}
    for at, command in enumerate(commands):
        mine = set(command.paths)
        found[command.name] = {
            other.name
            for other in commands[:at]
            if any(command.names(path) for path in other.paths)
            or mine & set(other.paths)
            or any(other.names(path) for path in mine)
        }
    return found


def _list(text: str, compared: Compared = "all") -> tuple[Command, ...]:
    """Commands from lines ``name: words [< stdin] [> stdout] [makes PATH]``."""
    found = []
    for line in filter(None, map(str.strip, text.replace("\\\n", " ").splitlines())):
        name, _, words = line.partition(": ")
        words, _, makes = words.partition(" makes ")
        words, _, stdout = words.partition(" > ")
        words, _, stdin = words.partition(" < ")
        found.append(
            Command(name, words, tuple(makes.split()), stdin.strip(), stdout.strip(), compared)
        )
    return tuple(found)


SEARCHES = _list("""
exact-latency: synth -t ring:4 -c allgather -e exact --objective latency --time 3600s -o ag4.json
exact-frontier: synth -t dgx1 -c allgather -e exact --time 3600s -o dgx1-ag --log dgx1-ag.log
exact-sums: synth -t ring:4 -c allreduce -e exact --time 3600s --json -o ring4-ar
exact-z3: synth -t ring:3 -c allgather -e 'exact{solver=z3}' --time 3600s -o z3.json \
    --objective latency
exact-rooted: synth -t dgx1 -c broadcast --group 4,0,1,5 --root 0 -e exact --objective latency \
    --time 3600s -o group.json
exact-sketch: synth -t dgx1 -c allgather -s in/halves.sketch:pieces=2 --objective latency \
    --time 3600s -o halves.json
exact-never: synth -t ring:4 -c allgather -s in/never.sketch --time 3600s
intervals-time: synth -t ring:4 -c allgather -e intervals --objective time --size 1MiB \
    --time 3600s -o iv.json
intervals-sizes: synth -t ring:4 -c allgather --sizes 1KiB:4KiB --time 3600s
own-python: synth -t ring:4 -c in/pairs.py --objective latency --time 3600s -o pairs.json
own-json: synth -t line:2 -c in/swap.json -e exact --objective latency --time 3600s -o swap.json
packing-torus: synth -t torus:3x3 -c alltoall -e packing --objective bandwidth --time 3600s \
    -o torus-a2a.json
packing-dead: synth -t mesh:3x3,dead=0-1 -c allgather -e packing --objective bandwidth \
    --time 3600s -o mesh-dead.json
packing-size: synth -t dgx1 -c allreduce -e packing --objective time --size 1MiB --time 3600s \
    -o dgx1-ar.json
packing-unequal: synth -t dgx-a100:nodes=2,nics=8,4 -c allgather -e packing \
    --objective bandwidth --time 3600s --json -o unequal.json
packing-few: synth -t mi250 -c allgather -e 'packing{trees=1}' --objective bandwidth \
    --time 3600s -o mi250.json
packing-line: synth -t line:5,bw=50GB/s -c allreduce -e packing --objective bandwidth \
    --time 3600s -o line5.json
packing-odd: synth -t in/edges.json -c reduce_scatter -e packing --objective bandwidth \
    --time 3600s -o odd.json
packing-paths: synth -t in/edges.json -c scatter --root 2 -e packing --objective bandwidth \
    --time 3600s -o odd-scatter.json
classic-ring: synth -t ring:8 -c allreduce -e classic --objective bandwidth --time 3600s \
    -o ring8.json
classic-named: synth -t dgx-a100:nodes=2 -c alltoall -e 'classic{algorithm=two_step}' \
    --objective bandwidth --time 3600s -o two-step.json
classic-size: synth -t dgx1 -c allreduce -e classic --objective time --size 64KiB --seed 3 \
    --time 3600s -o classic-size.json
flow-paths: synth -t dgx1 -c alltoall -e flow --objective time --size 1MB --time 3600s \
    -o flow.json
flow-copies: synth -t ring:4 -c allgather -e 'flow{chunks=1}' --objective time --size 1MB \
    --time 3600s -o copies.json
greedy-torus: synth -t torus:3x3 -c allgather -e greedy --objective time --size 1MiB --seed 5 \
    --time 3600s -o greedy.json
greedy-down: synth -t mesh:3x3 -c allgather -e greedy --down gpu0-gpu1 'gpu4->gpu5' \
    --objective time --size 1MiB --time 3600s -o greedy-down.json
greedy-stream: synth -t torus:4x4 -c allgather -e greedy --stream --seed 2 --time 3600s -o stream
sketched-relay: synth -t ndv2:nodes=2 -c allgather -s ndv2_relay -e 'sketched{patience=60}' \
    --objective time --size 1GB --time 3600s -o relay.json
sketched-sums: synth -t amd4 -c allreduce -s amd4_rotations -e 'sketched{patience=60}' \
    --objective time --size 1MiB --seed 1 --time 3600s -o amd4.json
sketched-free: synth -t in/edges.json -c allgather -e 'sketched{patience=40}' --objective time \
    --size 1MiB --time 3600s -o -
not-optimal: synth -t ring:4 -c alltoall -e greedy --objective time --size 1MiB --time 3600s \
    --require-optimal -o -
phases: synth -t dgx1:nodes=2 -c allreduce -s dgx1_rails:nodes=2 -e packing --objective time \
    --size 64MiB --time 3600s -o phases.json
portfolio-race: synth -t dgx-a100 -c allreduce -e 'portfolio{engines=packing+classic}' \
    --objective time --size 8KiB --time 3600s -o race.json
portfolio-down: synth -t dgx1 -c allgather --down-rank 0 --objective latency --time 3600s \
    -o without0.json
portfolio-hosts: synth -t in/box.toml:nodes=2 -c allreduce --objective bandwidth --time 3600s \
    -o boxes.json
portfolio-odd: synth -t in/edges.json -c allgather --objective time --size 1MiB --time 3600s \
    -o odd-ag.json --log odd-ag.log
teccl-question: synth -t in/teccl.json -c in/teccl.json -s in/teccl.json --objective latency \
    --time 3600s -o teccl-ag.json
""")

QUESTIONS = _list("""
bound-table: bound -t dgx1 -c allgather
bound-sizes: bound -t dgx-a100:nodes=2 -c allreduce --size 1KiB:1MiB --json
bound-schedule: bound boxes.json
bound-down: bound -t in/edges.json -c allreduce --down gpu1-gpu2 --size 1MiB
bound-nic: bound -t dgx-a100:nodes=2 -c allgather --down-nic host0.nic3
failures-table: failures -t dgx1 -c allgather
failures-nics: failures -t ndv2:nodes=2 -c allreduce --size 1MiB --json
failures-synth: failures -t ring:4 -c allgather --synth --worst 1 --time 3600s
failures-next: failures -t ring:4 -c allgather --down gpu0-gpu1 --directions
explain-schedule: explain ag4.json --size 1MiB
explain-packed: explain dgx1-ar.json --size 1MiB --json
explain-sketch: explain -t dgx1 -c allgather -s dgx1_double_links --time 3600s
explain-within: explain dgx1_double_links --at 1MiB --within 8us
explain-never: explain -t ring:4 -c allgather -s in/never.sketch --time 3600s
simulate-sizes: simulate dgx1-ar.json --size 1KiB:1GiB
simulate-rules: simulate ring8.json --size 1MiB --alpha-occupies --store-and-forward --barrier \
    --overhead 1us --json > simulated.json
simulate-xml: simulate ag4.xml -t ring:4 --size 1KiB:1MiB --protocol LL --json > simulated-xml.json
simulate-classic: simulate 'classic:torus{collective=allreduce,on=torus:3x3}' -t torus:3x3 \
    --size 1MiB
simulate-elsewhere: simulate ag4.json -t ring:4,bw=50GB/s --size 64KiB
""")

CHECKS = _list("""
check-schedule: check dgx1-ar.json
check-packed: check odd.json --json
check-sketched: check relay.json -s ndv2_relay -t ndv2:nodes=2
check-algorithm: check in/ring.py
check-wrong: check in/forgets.py
check-xml: check in/foreign.xml --target portable
check-stuck: check in/stuck.xml
check-sketch: check in/halves.sketch
check-collective: check in/swap.json --json
check-topology: check imported.json
check-stream: check stream
check-plan: check plan.json
check-script: check ring-mpi.py
check-program: check ring8.program.json
check-library: check library
check-stdin: check - < ag4.json
""")

COMPILES = _list("""
compile-xml: compile ag4.json --seed 7 -o ag4.xml
compile-frontier: compile dgx1-ag/allgather-3steps-7rounds-6chunks.json --target rccl \
    --in-place --instances 2 --size 1KiB:1MiB -o dgx1-ag.xml
compile-auto: compile dgx1-ar.json --instances auto --size 1MiB --json -o dgx1-ar.xml
compile-shares: compile line5.json --target executor --protocol LL128 -o line5.xml
compile-passes: compile ring8.json --no-run --print-after all --name plain \
    -p 'instances{count=2},channels{lanes=2},aggregate,fuse,sync,prune,chain' -o passes.xml
compile-algorithm: compile 'in/ring.py{ranks=6}' --in-place --protocol LL -o ring6.xml
compile-classic: compile 'classic:two_step{ranks=8,shape=4+2}' -o two-step.xml
compile-ring: compile 'classic:ring{collective=allgather,ranks=4}' -o ring4.xml
compile-lifted: compile in/foreign.xml --to program -o lifted.json
compile-program: compile ring8.json --to program -o ring8.program.json
compile-again: compile ring8.program.json --target portable -o ring8.xml
compile-plan: compile ag4.json --to mscclpp-json -o plan.json
compile-plan-hosts: compile boxes.json --to 'mscclpp-json{gpus_per_node=4}' --in-place \
    --protocol LL -o plan-hosts.json
compile-chakra: compile ag4.json --to chakra-et --size 1MiB -o ag4-chakra
compile-jax: compile ag4.json --to jax -o ag4-jax.py
compile-symm: compile ag4.json --to torch-symm -o ag4-symm.py
compile-calls: compile boxes.json --to torch-calls -o boxes-calls.py
compile-goal: compile ag4.json --to goal --size 1MiB -o ag4.goal
compile-mpi: compile 'classic:ring{collective=allreduce,ranks=4}' --to mpi -o ring-mpi.py
compile-torch: compile odd-ag.json --to torch -o odd-torch.py
compile-cupy: compile flow.json --to cupy-nccl --json -o flow-cupy.py
compile-stdout: compile group.json --no-run -q
""")

RUNS = (
    _list("""
run-xml: run ag4.xml --interleavings 20 --json
run-group: run group.json --interleavings 20 --dtype float16,int64
run-plan: run plan.json --interleavings 10
run-program: run ring8.program.json --interleavings 10
run-foreign: run in/foreign.xml --interleavings 10
run-stuck: run in/stuck.xml --interleavings 10
""")
    + _list(
        """
run-numpy: run ring-mpi.py --size 3KiB --trace measured.json
run-mpi: run ring-mpi.py --on mpi --size 1KiB --repeat 2
run-torch: run odd-torch.py --on torch --size 1KiB --repeat 2
bench-mpi: bench 'classic:ring{collective=allreduce,ranks=2}' --on mpi --sizes 1KiB:2KiB \
    --repeat 2 --json
""",
        compared="words",
    )
    + _list(
        """
profile-numpy: profile --on numpy --ranks 2 --time 1s -o profiled.json
""",
        compared="exit",
    )
)

LIBRARIES = _list("""
tune-ring: tune -t ring:4 -c allgather -c allreduce --sizes 64KiB:256KiB --protocols Simple \
    -e packing --time 3600s --to msccl-xml,mscclpp-json --placement out -o library
tune-sketch: tune -t in/edges.json -c broadcast --root 1 --sizes 1MiB -e classic --time 3600s \
    --protocols LL,Simple --json -o odd-library
resynth-down: resynth library --down gpu0-gpu1 -e packing --protocols Simple --time 3600s -o mended
sweep-list: sweep in/jobs.toml --cache kept -o swept -q
sweep-axes: sweep -t ring:4 -c allgather -c in/pairs.py -e exact -e greedy --size 4KiB \
    --seed 0 --seed 1 --time 3600s --no-cache --json
cache-list: cache list --cache kept
cache-clear: cache clear --cache kept
""")

JOBS = _list("""
workload-show: workload show in/job.json
plan-order: plan in/job.json -o job-plan.json
plan-order-json: plan in/job.json --judge 4 --json
plan-bound: plan in/together.json -t dgx1 --bound --json
plan-together: plan in/together.json -t dgx1 -o together
plan-show: show job-plan.json
place: place in/experts.json -t dgx-a100:nodes=4
place-json: place in/experts.json -t dgx-a100:nodes=4 --json
topo-search: topo search --ranks 16 --degree 4 --bw 50GB/s --top 2
topo-search-json: topo search -w in/together.json --ranks 8 --degree 3 --json
relays: synth -t dgx1 -c allgather --group 0..3 --relays all -e packing --time 3600s \
    --objective time --size 1MB
deploy: deploy library --at /shared/library --for slurm
deploy-json: deploy library --at /shared/library --runtime executor --json
verify-run: verify-run in/nccl_allgather.txt -t dgx-a100
tuner: tuner in/nccl_allgather.txt:algorithm=ring,protocol=simple -o nccl_tuner.conf
""")

LOOKS = _list("""
show-schedule: show dgx1-ar.json --size 1MiB
show-dead: show mesh-dead.json
show-stream: show stream --json
show-xml: show ag4.xml -t ring:4
show-plan: show plan.json
show-script: show ring-mpi.py
show-algorithm: show in/ring.py
show-library: show library
show-sketch: show in/halves.sketch --json
show-topology: show in/box.toml:nodes=2
perfetto-schedule: show dgx1-ar.json --format perfetto --size 1MiB -o dgx1-ar.trace.json
perfetto-program: show 'classic:ring{collective=allreduce,on=dgx1}' --format perfetto \
    --size 64KiB -o ring.trace.json
dot-machine: show in/nccl.xml:nodes=2 --format dot -o nccl.dot
dot-schedule: show odd.json --format dot -o odd.dot
svg-machine: show mesh:4x4,dead=5-6 --format svg -o mesh.svg
svg-schedule: show boxes.json --format svg --size 1MiB -o boxes.svg
svg-program: show ag4.xml -t ring:4 --format svg -o ag4.svg
html-schedule: show dgx1-ar.json --format html -o dgx1-ar.html
html-frontier: show dgx1-ag --log in/search.log --format html -o frontier.html
html-pair: show ring8.json greedy.json --format html --size 1MiB -o pair.html
html-program: show dgx1-ag.xml -t dgx1 --size 16MiB --format html -o program.html
html-library: show library --format html -o library.html
html-topology: show dgx1 --format html -o dgx1.html
html-results: show simulated.json --format html -o results.html
diff-schedules: diff greedy.json greedy-down.json
diff-equal: diff ag4.json ag4.json --json
diff-machines: diff line:3 line:3,bw=50GB/s
diff-programs: diff ag4.xml ring4.xml -t ring:4 --size 64KiB
diff-results: diff simulated.json simulated-xml.json
diff-libraries: diff library mended
diff-sketches: diff in/halves.sketch dgx1_double_links
""")

MACHINES = _list("""
topo-list: topo list
topo-catalogue: topo show dgx-a100:nodes=4,nics=8,8,4,2
topo-group: topo show dgx1:nodes=2 --group 0..3,8..11 --json
topo-toml: topo show in/box.toml:nodes=3,fabric=planes:2
topo-smi: topo import in/smi.txt:nodes=2 -o imported.json
topo-nccl: topo show in/nccl.xml:pcie=on
topo-taccl: topo show in/taccl.json:nodes=2
topo-teccl: topo show in/teccl.json:as_shipped=on --json
topo-edges: topo import in/edges.json --json -o edges.topo.json
topo-p2p: topo show in/p2p.txt
topo-nccl-tests: topo show in/nccl_tests.txt
topo-calibrate: topo calibrate dgx-a100 in/nccl_allgather.txt --json -o calibrated.json
topo-again: topo show imported.json
topo-structure: topo show dgx1 --structure --json
topo-diff: topo diff dgx1 dgx1:dead=0-4
topo-stdin: topo show - < in/smi.txt
sketch-list: sketch list
sketch-show: sketch show dgx2_relay
sketch-fmt-check: sketch fmt --check in/loose.sketch
sketch-fmt: sketch fmt in/loose.sketch makes in/loose.sketch
sketch-taccl: sketch import in/taccl_sketch.json -t in/taccl.json --machine taccl-machine.json \
    -o taccl.sketch
sketch-teccl: sketch import in/teccl.json --json
sketch-derive: sketch derive -t ring:4 -c allgather -o derived.sketch
list-engines: list engines
list-backends: list backends --json
list-passes: list passes
list-algorithms: list algorithms
completion-script: completion bash
completion-line: completion zsh --line='weft synth -t dgx'
doctor: doctor
""")

MISTAKES = _list("""
help: --help
help-synth: synth --help
version: --version
slip-verb: syhth -t ring:4
slip-option: topo show ring:8,bandwith=25GB/s
slip-flag: synth -t ring:4 -c allgather --objectiv latency
slip-collective: synth -t ring:4 -c allgahter --json
slip-engine: synth -t ring:4 -c allgather -e packing{tree=1}
slip-key: check in/slip.json
slip-sketch: check in/slip.sketch
slip-file: compile nowhere.json
slip-format: show in/p2p.txt --format sgv
slip-cut: bound -t line:4 -c allreduce --down gpu0-gpu1
slip-grid: synth -t dgx-a100:nodes=2 --group 0,1,2,8,9 -c allreduce \
    -e 'classic{algorithm=two_level}'
slip-pass: compile ag4.json -p fus
slip-serve: serve --socket in/swap.json
slip-overwrite: compile ag4.json -o ag4.xml
""")

COMMANDS = (
    *SEARCHES,
    *COMPILES,
    *LIBRARIES,
    *JOBS,
    *MACHINES,
    *RUNS,
    *QUESTIONS,
    *CHECKS,
    *LOOKS,
    *MISTAKES,
)
"""All of them; what takes long comes first."""
