"""The choice of what a run need not be told: recomputation, engine, precision and sectors, by the
cost model.
"""
