"""Lists what processes of tests have imported when they start: the server that they are forked from
imports it once for all, and counts what rank 0 predicts of the usual models before it trains.
"""

import gc
from importlib import import_module

# Modules are no garbage, and a quarter of the time went into looking.
gc.disable()
for name in (
    "pytest",
    "bigtrk.program",
    "bigtrk.pipeline.reconstruct",
    "bigtrk.reports",
    "partition.cutting",
    "tests.programs",
    "tests.distributed.runs",
    "tests.distributed.parity",
    # Which are imported when an engine is made: by ours, and 680 modules by DeepSpeed.
    "bigtrk.parallel.engines.deepspeed_engine",
    "bigtrk.parallel.engines.fsdp2",
    "torch._inductor.compile_fx",
):
    import_module(name)
# A backward pass starts threads for GPUs, with which no process can be forked.
if not import_module("torch").backends.cuda.is_built():
    from bigtrk.cost.machines import CPU
    from bigtrk.training.fitting import make_cost
    from bigtrk.training.settings import Configuration

    for layers in (2, 3):
        model = {"hidden": 8, "layers": layers}
        cost = make_cost(Configuration.model_validate({"model": model}), 1, 1, CPU)
        for cut in (False, True):
            cost.footprint(cut)
# A process that looks for garbage among what is here touches, and so copies, all of its memory.
gc.collect()
gc.freeze()
gc.enable()
