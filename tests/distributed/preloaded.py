"""Lists what processes of tests have imported when they start: the server that they are forked from
imports it once for all.
"""

import gc
from importlib import import_module

for name in (
    "pytest",
    "bigtrk.train",
    "bigtrk.pipeline.reconstruct",
    "bigtrk.reports",
    "partition.one_event",
    "tests.programs",
    "tests.distributed.runs",
    "tests.distributed.parity",
    # Which are imported when an engine is made: by ours, and 680 modules by DeepSpeed.
    "bigtrk.parallel.engines.deepspeed_engine",
    "bigtrk.parallel.engines.fsdp",
    "torch._inductor.compile_fx",
):
    import_module(name)
# A process that looks for garbage among what is here touches, and so copies, all of its memory.
gc.collect()
gc.freeze()
