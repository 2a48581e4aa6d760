"""A scaling series as a shell script that submits SLURM job arrays."""

import shlex

from bigtrk.errors import InputError
from bigtrk.studies.scaling.plan_series import ScalingSeries, open_series
from bigtrk.studies.scaling.series import run_name

SCRIPT = """\
#!/bin/bash
# A {kind} scaling series: a job array per number of ranks, a task per repeat. Submit it
# from the folder that paths below start from:
#
#   export BIGTRK_HOME=$HOME/bigtrk    # the checkout, installed into its .venv
#   bash FILE --partition=gpu --gpus-per-node=4      # any options of sbatch
#
# BIGTRK_BATCH names another batch file. Trained runs are left as they are, others go on from their
# last checkpoint. Then, whatever is there:
#
#   bigtrk report {out} --html report.html

set -euo pipefail
batch=${{BIGTRK_BATCH:-${{BIGTRK_HOME:?names the checkout of bigtrk}}/scripts/slurm/generic.sbatch}}
options=("$@")

# array RANKS NODES RANKS_PER_NODE RUN ARGUMENT...: task N trains RUN-N with the seed {seed} + N - 1
array() {{
    BIGTRK_ARRAY_RUN=$4 BIGTRK_ARRAY_SEED={seed} sbatch --array=1-{repeats} \\
        --job-name="${{4##*/}}" --ntasks="$1" --nodes="$2" --ntasks-per-node="$3" \\
        "${{options[@]}}" "$batch" "${{@:5}}"
}}

{arrays}
"""


def slurm_script(series: ScalingSeries) -> str:
    """Returns the script and writes `series.json`, so that the runs can be reported as they come.

    Raises:
        InputError: the folder holds another series, or a name would break a line of the script.
    """
    for name in (str(series.folder), *series.arguments(1)):
        if not name.isprintable():
            raise InputError(f"{name!r}: a script holds printable names only; choose another")
    open_series(series)
    record = series.record
    return SCRIPT.format(
        kind=record.kind,
        out=shlex.quote(str(series.folder)),
        seed=series.seed,
        repeats=record.repeats,
        arrays="\n".join(_array(series, ranks) for ranks in record.ranks),
    )


def _array(series: ScalingSeries, ranks: int) -> str:
    most = series.record.ranks_per_node or ranks
    nodes, run = -(-ranks // most), series.folder / run_name(ranks)
    words = [ranks, nodes, min(ranks, most), run, *series.arguments(ranks)]
    return shlex.join(["array", *map(str, words)])
