"""Who a process is, from what each launcher leaves in the environment."""

import pytest

from bigtrk.parallel.ranks import Ranks, discover, publish

SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
    "SLURM_JOB_ID": "41234",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
}
DEEPSPEED = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks(0, 1, 0, 1, "python")),
        (TORCHRUN, Ranks(3, 4, 1, 2, "torchrun")),
        (DEEPSPEED, Ranks(3, 4, 1, 2, "deepspeed")),
        (SLURM, Ranks(5, 8, 1, 4, "srun")),
        # The batch script of a job, outside srun, is one plain process.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Ranks(0, 1, 0, 1, "python")),
        # A launcher started inside a SLURM job wins over SLURM.
        ({**SLURM, **TORCHRUN}, Ranks(3, 4, 1, 2, "torchrun")),
    ],
)
def test_discover(environment: dict[str, str], expected: Ranks) -> None:
    assert discover(environment) == expected


def test_srun_tasks_meet_at_the_launch_node_on_the_jobs_port() -> None:
    variables = publish(discover(SLURM), SLURM)
    assert variables["MASTER_ADDR"] == "10.0.0.7"
    assert variables["MASTER_PORT"] == str(20000 + 41234 % 20000)
    assert (variables["RANK"], variables["WORLD_SIZE"]) == ("5", "8")


def test_a_launchers_own_address_is_kept() -> None:
    environment = {**TORCHRUN, "MASTER_ADDR": "node1", "MASTER_PORT": "1234"}
    variables = publish(discover(environment), environment)
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("node1", "1234")
