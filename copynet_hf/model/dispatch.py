"""Which form of the equations runs: the fast one, with gradients by hand, or the readable one.

The fast form, `fused` in code and config, uses weights directly: it bypasses modules' hooks and replacements, and
tracers cannot see into it. So it runs only where that makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from .attention import CopyNetAttention, CoverageProjection
from .configuration_copynet import CopyNetConfig

_OWN_TYPES = (nn.Linear, nn.GRU, nn.GRUCell, CoverageProjection, CopyNetAttention)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def find_fast_form_obstacles(
    config: CopyNetConfig, modules: Mapping[str, nn.Module | None] | None = None, device: torch.device | None = None
) -> list[str]:
    """Why the readable form has to run; an empty list: the fast form may.

    Args:
        modules: by name, those whose weights the fast form reads; None where the config leaves one out.
        device: where the activations are.
    """
    reasons = []
    if not config.use_fused:
        reasons.append("use_fused=False: the user's choice")
    if torch.compiler.is_compiling():
        reasons.append("torch.compile or torch.export is tracing the model")
    if torch.jit.is_tracing():
        reasons.append("torch.jit.trace is tracing the model, and cannot save the fast form")
    if torch._C._are_functorch_transforms_active():
        reasons.append("torch.func is transforming the model")
    if device is not None and device.type == "meta":
        reasons.append("the meta device has no values to index by")
    if modules and torch_module._has_any_global_hook():
        reasons.append("a hook is registered for all modules")
    for name, module in (modules or {}).items():
        if module is not None:
            reasons += [f"{name} {reason}" for reason in _replacements(module, device)]
    return reasons


def has_values(tensor: Tensor) -> bool:
    """Whether Python may look at the tensor's values: not while tracing, nor on the meta device."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing() or tensor.is_meta)


def _replacements(module: nn.Module, device: torch.device | None) -> list[str]:
    """What makes a module do more than its class and weights say."""
    reasons = []
    if type(module) not in _OWN_TYPES:  # an adapter, quantised, pruned or otherwise parametrised
        reasons.append(f"is a {type(module).__name__}")
    if any(getattr(module, hooks) for hooks in _HOOKS) or "forward" in vars(module):  # accelerate replaces forward
        reasons.append("has hooks")
    kinds = {type(weight) for weight in module.parameters(recurse=False)} - {nn.Parameter}
    reasons += [f"has a weight that is a {kind.__name__}" for kind in kinds]  # a quantised or distributed one
    if any(weight.device != device for weight in module.parameters(recurse=False)):
        reasons.append("is offloaded")
    return reasons
