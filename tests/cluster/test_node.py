"""A whole node is lost: of a Ray of several nodes, each with its own object store and processes (all on this machine), one is taken away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CHILD = """
import contextlib, importlib.util, json, os, signal, sys, time

import ray
from ray.cluster_utils import Cluster

spec = importlib.util.spec_from_file_location("fleet", sys.argv[1])
fleet = importlib.util.module_from_spec(spec)
toy = json.loads(sys.argv[2])


def node_of(engine):
    return placement_group_table(world.fleet.backend._group)["bundles_to_node_id"][engine]


if __name__ == "__main__":
    sys.modules["toy.conftest"] = type("conftest", (), {"TOY": toy})
    spec.loader.exec_module(fleet)
    from ray.util import placement_group_table

    store = 80 << 20
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": store})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=store) for _ in range(3)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    world = fleet.World(fleet.configure("toy", {"name": "ray", "engines": {"number": 2, "cpus": 1.0}, "strategy": "STRICT_SPREAD"}))
    mine = world.here(0, 4)
    fleet.same(world.there(4), mine)
    lost, pid = node_of(1), world.pids()[1]
    play, shot = world.fleet._play, []

    def shoot(link, jobs):
        if link.index == 1 and not shot:
            shot.append(1)
            cluster.remove_node(next(n for n in nodes if n.node_id == lost), allow_graceful=False)
            with contextlib.suppress(ProcessLookupError):  # it lives on for a moment when its node has gone
                os.kill(pid, signal.SIGKILL)
        play(link, jobs)

    world.fleet._play = shoot
    start = time.monotonic()
    found = world.there(4)
    took = time.monotonic() - start
    print(took, *world.said, file=sys.stderr)
    fleet.same(found, mine)
    print(json.dumps({"took": took, "moved": node_of(1) != lost, **world.fleet.metrics()}))
    world.fleet.close()
    ray.shutdown()
    cluster.shutdown()
"""


def test_a_lost_node_costs_its_episodes_which_are_played_again_elsewhere(tmp_path: Path, toy_layer: dict[str, Any]) -> None:
    """Under the same seeds, on the spare node that takes over its engine."""
    pytest.importorskip("ray", reason="the package ray is not installed (the extra ray)")
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "child.py", str(Path(__file__).with_name("test_fleet.py")), json.dumps(toy_layer)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(next(x for x in done.stdout.splitlines() if x.startswith("{")))
    assert found["moved"] and found["cluster/restarts"] >= 1 and found["cluster/episodes_lost"] == 4
