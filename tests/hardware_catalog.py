"""All hardware cases by family, made when they are asked for."""

from collections.abc import Iterator
from functools import cache

import hardware_barriers
import hardware_cluster
import hardware_memory_forms
import hardware_scalar_forms
import hardware_tma
import hardware_warp_forms
import hardware_wgmma
from hardware_runs import Case
from hardware_scalar import scalar_case
from hardware_shared import shared_cases
from hardware_warp import warp_case
from hardware_wgmma import Wgmma
from hardware_wmma import wmma_case


@cache
def scalar_cases() -> dict[str, Case]:
    """Instructions of single threads."""
    return {
        name: scalar_case(name, kind, forms)
        for name, (kind, forms) in hardware_scalar_forms.FAMILIES.items()
    }


@cache
def warp_cases() -> dict[str, Case]:
    """Instructions of one warp, memory and atomics."""
    module = hardware_memory_forms.MODULE
    families = {**hardware_warp_forms.FAMILIES, **hardware_memory_forms.FAMILIES}
    found = {name: warp_case(name, forms, module) for name, forms in families.items()}
    return {**found, "wmma": wmma_case()}


@cache
def wgmma_forms(family: str) -> dict[str, Wgmma]:
    """wgmma: types, sizes or layouts."""
    return {form.name: form for form in hardware_wgmma.all_forms()[family]}


@cache
def copy_cases() -> dict[str, dict[str, Case]]:
    """Tensor copies, bulk copies, mbarriers, clusters, by family."""
    families = {
        **hardware_tma.all_cases(), **hardware_cluster.all_cases(),
        **hardware_barriers.all_cases(), "shared variables": list(shared_cases()),
    }  # fmt: skip
    return {family: {case.name: case for case in found} for family, found in families.items()}


def cases() -> Iterator[Case]:
    """Every one that there is a record of."""
    for found in copy_cases().values():
        yield from found.values()
    yield from scalar_cases().values()
    yield from warp_cases().values()
    for family in hardware_wgmma.all_forms():
        for form in wgmma_forms(family).values():
            yield form.case
