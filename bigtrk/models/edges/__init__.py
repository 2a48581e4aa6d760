"""Edges of a sector between layers: their states, the passes over them, and where they are kept.

A layer of the Interaction GNN reads state i of all edges, [E, H], and makes state i + 1; an event
has 20 times more edges than nodes, so these states are nearly all of a training's memory and time.
Four rules follow:

* states.py. Autograd never sees the states: it gets an empty tensor [E, 0] in the place of each,
  and the layers' backward passes are written by hand. The gradient of a layer's first product takes
  the place of the state that the layer made, and no gradient of all edges is summed: its parts are
  products with weights, computed where they are needed.
* passes.py. A layer is one autograd function: all edges, then the owned nodes. Between forward and
  backward it keeps the nodes that it read (on GPUs also its sums of edges at nodes); the backward
  pass computes the rest anew, chunk by chunk (`model.recompute=chunk`), so that a chunk stays in
  cache from its first product to its last.
  While halo rows travel, it computes the edges that read none of them. The first product of
  `MLP([edge, source, destination])` is never of a concatenation: the nodes' share is computed per
  node and then gathered.
* stores.py. A store holds the states: the device's memory, the host's (`model.recompute=offload`)
  or files (`training.spill`). Passes go through blocks that are read ahead of their use and written
  behind it, so an event is bounded by the disk and not by memory.
* The forms of a pass. plain.py says in torch what each computes and is the oracle of the others;
  native.py has them in C for CPUs, triton_passes.py on GPUs, and fused_pass.py a layer's whole pass
  in one launch of fused.py, with rows in registers (triton_whole_rows.py). fused_nodes.py has the
  nodes' update and shares in a few more (triton_nodes.py), fused_mlp.py encoders and the decoder.
  schedule.py lays the work on a GPU's programs, and
  work.py counts what each launch computes and moves, for the cost model.

Every sum has one order, on CPUs and GPUs: the bits are the same in every run. `passes_for` of
states.py chooses the fastest form for a device.
"""
