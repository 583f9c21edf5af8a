"""Launches: what is checked before the driver, and the configuration that it is given."""

from typing import Any

import pytest

from ptxgen.errors import LaunchError
from ptxgen.launch import Launch, Param
from ptxgen.launcher.launching import _configuration, check_launch
from ptxgen.launcher.module import Kernel
from ptxgen.launcher.timing import rotation_count

bindings = pytest.importorskip("cuda.bindings.driver")
SMEM = 232448


def launch(**changes: Any) -> Launch:
    values: dict[str, Any] = {
        "entry": "k", "grid_ctas": (8, 1, 1), "cta_threads": (128, 1, 1),
        "cluster_ctas": (2, 1, 1), "dynamic_smem_bytes": 1024, **changes,
    }  # fmt: skip
    return Launch(**values)


def kernel(**changes: Any) -> Kernel:
    values: dict[str, Any] = {
        "entry": "k", "handle": None, "registers": 168, "local_bytes": 0,
        "static_smem_bytes": 1024, "max_cta_threads": 384, "param_sizes": (), **changes,
    }  # fmt: skip
    return Kernel(**values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cta_threads": (512, 1, 1)}, "512 threads, this kernel can have 384"),
        ({"dynamic_smem_bytes": SMEM}, "needs 233472 B of shared memory with 1024 B static"),
        ({"params": (Param("n", "u32", 1),)}, r"declares parameters of \[\] bytes.*n=4"),
    ],
)
def test_a_launch_that_cannot_work_is_refused_with_its_numbers(
    changes: dict[str, Any], message: str
) -> None:
    sizes = [4 for _ in changes.get("params", ())]
    with pytest.raises(LaunchError, match=message) as error:
        check_launch(launch(**changes), kernel(), sizes, SMEM)
    assert "k" in str(error.value)


def test_a_launch_that_fits_is_accepted_to_the_byte() -> None:
    check_launch(launch(dynamic_smem_bytes=SMEM - 1024), kernel(), (), SMEM)


def test_parameters_are_not_compared_where_the_driver_cannot_say() -> None:
    params = (Param("n", "u32", 1),)
    check_launch(launch(params=params), kernel(param_sizes=None), (4,), SMEM)


def test_the_grid_is_counted_in_ctas_whatever_the_cluster() -> None:
    config, attributes = _configuration(bindings, launch())
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (8, 128, 1024)
    (cluster,) = attributes
    dim = cluster.value.clusterDim
    assert int(cluster.id) == 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (dim.x, dim.y, dim.z) == (2, 1, 1)
    assert config.numAttrs == 1


def test_a_dependent_launch_carries_its_attribute() -> None:
    _, attributes = _configuration(bindings, launch(cluster_ctas=(1, 1, 1), overlaps_previous=True))
    (overlap,) = attributes
    assert int(overlap.id) == 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert overlap.value.programmaticStreamSerializationAllowed == 1


@pytest.mark.parametrize(("nbytes", "l2"), [(1 << 20, 50 << 20), (1, 1 << 20), (1 << 30, 1 << 20)])
def test_between_two_uses_of_a_copy_twice_the_l2_passes(nbytes: int, l2: int) -> None:
    assert (rotation_count(nbytes, l2) - 1) * nbytes >= 2 * l2
