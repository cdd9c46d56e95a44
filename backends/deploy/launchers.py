"""Lines that start a program with variables on all hosts: mpirun, srun, torchrun, MPIJob."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from weft.dsl.base.lazy_dataclass import dataclass

PYTHON = "train.py"
"""The program that torchrun starts, in the examples."""


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """A program on hosts that have equally many GPUs, one process for each.

    Attributes:
        variables: for the environment of every process.
        command: the program and its arguments.
        folder: what the hosts must see at one path.
        amd: the GPUs are AMD's.
    """

    hosts: int
    gpus: int
    variables: tuple[tuple[str, str], ...]
    command: str
    folder: str
    amd: bool = False


def assigned(name: str, value: str) -> str:
    """Return ``NAME=value`` quoted for a shell; ``$`` keeps its meaning.

    >>> assigned("NCCL_ALGO", "MSCCL,RING"), assigned("A", "b c"), assigned("LD", "$HOME/x")
    ('NCCL_ALGO=MSCCL,RING', "A='b c'", 'LD="$HOME/x"')
    """
    if value.startswith("$"):
        return f'{name}="{value}"'
    return f"{name}={shlex.quote(value)}"


def mpirun(job: LaunchJob) -> str:
    """Return the line for Open MPI; ``-x`` hands a variable to all hosts."""
    options = [f"-x {assigned(*one)}" for one in job.variables]
    return _broken(
        [f"mpirun -np {job.hosts * job.gpus} --map-by ppr:{job.gpus}:node", *options, job.command]
    )


def srun(job: LaunchJob) -> str:
    """Return a script for ``sbatch``: values may have commas, which ``--export`` takes for ends."""
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --nodes={job.hosts}",
            f"#SBATCH --ntasks-per-node={job.gpus}",
            f"#SBATCH --gpus-per-node={job.gpus}",
            *(f"export {assigned(*one)}" for one in job.variables),
            f"srun --mpi=pmix --export=ALL {job.command}",
        ]
    )


def slurm_line(job: LaunchJob) -> str:
    """Return one command for a shell that may call ``srun`` itself."""
    size = f"--nodes={job.hosts} --ntasks-per-node={job.gpus} --gpus-per-node={job.gpus}"
    words = [assigned(*one) for one in job.variables]
    return _broken([*words, f"srun {size} --mpi=pmix", job.command])


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
    """Return an MPIJob of the Kubeflow MPI operator; the claim ``shared`` holds the library."""
    resource = "amd.com/gpu" if job.amd else "nvidia.com/gpu"
    line = ["mpirun", "-np", str(job.hosts * job.gpus), "--map-by", f"ppr:{job.gpus}:node"]
    for name, value in job.variables:
        line += ["-x", f"{name}={value}"]
    line += shlex.split(job.command)
    mount = [
        "              volumeMounts:",
        f"                - {{name: library, mountPath: {json.dumps(job.folder)}, readOnly: true}}",
    ]
    volume = [
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
            *mount,
            *volume,
            "    Worker:",
            f"      replicas: {job.hosts}",
            "      template:",
            "        spec:",
            "          containers:",
            "            - name: worker",
            "              image: YOUR_IMAGE",
            f"              resources: {{limits: {{{resource}: {job.gpus}}}}}",
            *mount,
            *volume,
        ]
    )


LAUNCHERS: Mapping[str, Callable[[LaunchJob], str]] = MappingProxyType(
    {"mpirun": mpirun, "slurm": srun, "torchrun": torchrun, "kubernetes": kubernetes}
)
"""All launchers by the value of ``--for``."""


def _broken(words: Sequence[str]) -> str:
    """Return words as one command, a line each."""
    return " \\\n  ".join(words)
