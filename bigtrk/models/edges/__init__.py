"""The states of edges between layers, the passes that compute them, and the stores that keep them.

A layer of the Interaction GNN reads state i of all edges, [E, H], and makes state i + 1. An event
has 20 times more edges than nodes, so these states take nearly all of a training's memory and time.
Four rules follow:

* states.py. Autograd never sees the states: an empty tensor [E, 0] stands for each, and the layers'
  backward passes are written by hand. The gradient of a layer's first product overwrites the state
  that the layer made. No gradient of all edges is summed: its terms are products with weights,
  which are computed where they are needed.
* passes.py. A layer is one autograd function: all edges, then the owned nodes. Between forward and
  backward it keeps the nodes that it read (on GPUs also its sums of edges at nodes). The backward
  pass computes the rest again, chunk by chunk (`model.recompute=chunk`), so that a chunk stays in
  cache from its first product to its last. While halo rows travel, a layer computes edges that read
  none of them. The first product of `MLP([edge, source, destination])` never concatenates: nodes'
  shares are computed per node and then gathered.
* stores.py. A store holds the states in the device's memory, the host's (`model.recompute=offload`)
  or files (`training.spill`). Passes go through blocks that are read before their use and written
  after it, so the disk and not memory limits the size of an event.
* The forms of a pass. plain.py computes each in torch and is the oracle of the others; native.py
  has them in C for CPUs, triton_passes.py on GPUs. fused_pass.py has a layer's edges, an encoder or
  the decoder in one launch of fused.py, with rows in registers (triton_whole_rows.py), and the
  nodes' update and shares in a few more (triton_nodes.py). schedule.py lays the work on a GPU's
  programs, and work.py counts what each launch computes and moves, for the cost model.

Every sum has one order, on CPUs and GPUs: the bits are the same in every run. `passes_for` of
states.py chooses the fastest form for a device.
"""
