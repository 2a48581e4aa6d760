"""A tiny valid event as CSV text, for tests that spoil it."""

from pathlib import Path

import pytest

NAME = "event000000007"
TINY = {
    "hits": "hit_id,x,y,z,volume_id,layer_id,module_id\n"
    "1,30.5,1.0,5.0,8,2,1\n2,70.5,2.0,9.0,8,4,2\n3,110.5,3.0,14.0,8,6,3\n",
    "cells": "hit_id,ch0,ch1,value\n1,10,20,0.5\n1,11,20,0.25\n3,7,8,0.125\n",
    "particles": "particle_id,vx,vy,vz,px,py,pz,q,nhits\n4503668346847233,0,0,1,1,0,0.5,1,2\n",
    "truth": "hit_id,particle_id,tx,ty,tz,tpx,tpy,tpz,weight\n"
    "1,4503668346847233,30.5,1,5,1,0,0.5,0.5\n2,4503668346847233,70.5,2,9,,,,\n"
    "3,0,110.5,3,14,0,0,0,0\n",
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with one three-hit event, uncompressed."""
    for table, text in TINY.items():
        (tmp_path / f"{NAME}-{table}.csv").write_text(text)
    return tmp_path
