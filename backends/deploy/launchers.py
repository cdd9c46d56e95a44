"""Lines that start a program with variables on all hosts: mpirun, srun, torchrun, MPIJob.

Text from a file or a flag is one quoted word in them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from weft.dsl.base.lazy_dataclass import dataclass

from .settings import FACTS

PYTHON = "train.py"
"""The program that torchrun starts, in the examples."""

PLACE = "$WEFT_LIBRARY"
"""Stands for a library's folder where that is not known; the one variable of a shell in values."""

HOSTS = "hosts"
"""The file with a line for each host, for mpirun."""

SHARED_MEMORY = "16Gi"
"""Size of ``/dev/shm`` in a container, which would have 64 MiB: NCCL's buffers inside a host."""


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """A program on hosts that have equally many GPUs, one process for each.

    Attributes:
        variables: for the environment of every process.
        command: the program and its arguments.
        folder: the one that the hosts must see at one path.
        amd: the GPUs are AMD's.
    """

    hosts: int
    gpus: int
    variables: tuple[tuple[str, str], ...]
    command: str
    folder: str
    amd: bool = False


def word(text: str) -> str:
    r"""Return a text as one word of bash or zsh, on one line and without control characters;
    :data:`PLACE` alone keeps its meaning.

    >>> print(word("a"), word("b $(c)"), word("a\nb"), word("=c"), word(PLACE + "/a b.xml"))
    a 'b $(c)' $'a\x0ab' '=c' "$WEFT_LIBRARY"'/a b.xml'
    """
    parts = (_quoted(part) if part else "" for part in text.split(PLACE))
    return f'"{PLACE}"'.join(parts) or "''"


def _quoted(text: str) -> str:
    if not text.isprintable():
        kept = (
            c
            if c.isprintable() and c not in "\\'"
            else "".join(f"\\x{one:02x}" for one in c.encode("utf-8", "surrogatepass"))
            for c in text
        )
        return f"$'{''.join(kept)}'"
    # Without quotes zsh would look for a command whose name stands after the =.
    return f"'={shlex.quote(text[1:] + ' ')[1:-2]}'" if text.startswith("=") else shlex.quote(text)


def assigned(name: str, value: str) -> str:
    """Return ``NAME=value`` quoted for a shell."""
    return f"{name}={word(value)}"


def mpirun(job: LaunchJob) -> str:
    """Return the line for Open MPI; ``-x`` hands a variable to all hosts. Bound to a core, as Open
    MPI does, a process would share it with its NCCL's threads."""
    hosts = f" --hostfile {HOSTS}" if job.hosts > 1 else ""
    options = [f"-x {assigned(*one)}" for one in job.variables]
    start = f"mpirun -np {job.hosts * job.gpus}{hosts} --map-by ppr:{job.gpus}:node --bind-to none"
    return _broken([start, *options, job.command])


def hosts_text(names: Sequence[str], job: LaunchJob) -> str:
    """Return the file of hosts for mpirun; ``names``: theirs, where all are known."""
    known = len(names) == job.hosts and all(re.fullmatch(r"[\w.-]+", n, re.ASCII) for n in names)
    listed = names if known else [f"HOST{i}" for i in range(job.hosts)]
    return "".join(f"{name} slots={job.gpus}\n" for name in listed)


def srun(job: LaunchJob) -> str:
    """Return a script for ``sbatch``: values may have commas, which ``--export`` takes for ends."""
    sized = (f"#SBATCH {option}" for option in _sized(job))
    exports = (f"export {assigned(*one)}" for one in job.variables)
    start = f"srun --mpi=pmix --cpus-per-task={FACTS.process_cores} --export=ALL {job.command}"
    return "\n".join(["#!/bin/bash", *sized, *exports, start])


def slurm_line(job: LaunchJob) -> str:
    """Return one command for a shell that may call ``srun`` itself."""
    words = [assigned(*one) for one in job.variables]
    return _broken([*words, f"srun {' '.join(_sized(job))} --mpi=pmix", job.command])


def _sized(job: LaunchJob) -> tuple[str, ...]:
    gpus = (f"--ntasks-per-node={job.gpus}", f"--gpus-per-node={job.gpus}")
    return (f"--nodes={job.hosts}", *gpus, f"--cpus-per-task={FACTS.process_cores}")


def torchrun(job: LaunchJob) -> str:
    """Return the line that each host runs; the first host's name stands for ``$HEAD``."""
    many = (
        f"--nnodes {job.hosts} --rdzv-backend c10d --rdzv-endpoint $HEAD:29500"
        if job.hosts > 1
        else "--standalone"
    )
    variables = [assigned(*one) for one in job.variables]
    start = f"torchrun {many} --nproc-per-node {job.gpus} {PYTHON}"
    return _broken([*variables, start])


def kubernetes(job: LaunchJob) -> str:
    """Return an MPIJob of the Kubeflow MPI operator, which names the hosts; the claim ``shared``
    holds the library."""
    resource = f"{'amd.com/gpu' if job.amd else 'nvidia.com/gpu'}: {job.gpus}"
    if job.hosts > 1:
        resource += ", rdma/rdma_shared_device_a: 1"
    line = ["mpirun", "--allow-run-as-root", "-np", str(job.hosts * job.gpus)]
    line += ["--map-by", f"ppr:{job.gpus}:node", "--bind-to", "none"]
    for name, value in job.variables:
        line += ["-x", f"{name}={value}"]
    line += shlex.split(job.command)
    folder = [
        "              volumeMounts:",
        f"                - {{name: library, mountPath: {json.dumps(job.folder)}, readOnly: true}}",
    ]
    shared = [
        "          volumes:",
        "            - {name: library, persistentVolumeClaim: {claimName: shared}}",
    ]
    return "\n".join(
        [
            "apiVersion: kubeflow.org/v2beta1",
            "kind: MPIJob",
            "metadata: {name: weft}",
            "spec:",
            f"  slotsPerWorker: {job.gpus}",
            "  mpiReplicaSpecs:",
            "    Launcher:",
            "      replicas: 1",
            "      template:",
            "        spec:",
            "          containers:",
            "            - name: launcher",
            "              image: YOUR_IMAGE",
            f"              command: {json.dumps(line)}",
            *folder,
            *shared,
            "    Worker:",
            f"      replicas: {job.hosts}",
            "      template:",
            "        spec:",
            "          containers:",
            "            - name: worker",
            "              image: YOUR_IMAGE",
            "              # RDMA's resource has the name that your device plug-in gives it",
            f"              resources: {{limits: {{{resource}}}}}",
            "              securityContext: {capabilities: {add: [IPC_LOCK]}}",
            *folder,
            "                - {name: shm, mountPath: /dev/shm}",
            *shared,
            "            - name: shm",
            f"              emptyDir: {{medium: Memory, sizeLimit: {SHARED_MEMORY}}}",
        ]
    )


LAUNCHERS: Mapping[str, Callable[[LaunchJob], str]] = MappingProxyType(
    {"mpirun": mpirun, "slurm": srun, "torchrun": torchrun, "kubernetes": kubernetes}
)
"""All launchers by the value of ``--for``."""


def _broken(words: Sequence[str]) -> str:
    """Return words as one command, a line each."""
    return " \\\n  ".join(words)
