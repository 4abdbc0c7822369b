"""check_adapter_with_peft.py - PEFT loads an adapter written by snug and computes what the formula says.

A tiny random Qwen2 gets adapters on its linear layers: once through PEFT from the folder that src/store wrote,
once by hand, each weight W replaced by W + scale * B A. The logits must agree.
"""
import copy
import ctypes
import math
import os
import tempfile
import warnings

import torch
from peft import PeftModel
from transformers import Qwen2Config, Qwen2ForCausalLM

from store_lib import TARGETS, AdapterConfig, Store

warnings.filterwarnings("ignore")


def key(store, layer, target, b):
    out = ctypes.create_string_buffer(128)
    store.lib.adapter_key(out, ctypes.c_size_t(128), layer, TARGETS.index(target), ctypes.c_bool(b))
    return out.value.decode()


def check(store, base, chosen, rank, alpha, rslora):
    config = AdapterConfig(rank=rank, alpha=alpha, dropout=0.1, base_model=b"tiny", use_rslora=rslora,
                           targets=sum(1 << TARGETS.index(t) for t in chosen))
    scale = alpha / math.sqrt(rank) if rslora else alpha / rank
    by_hand = copy.deepcopy(base)
    tensors = []
    for number, layer in enumerate(by_hand.model.layers):
        for target in chosen:
            block = layer.self_attn if hasattr(layer.self_attn, target) else layer.mlp
            weight = getattr(block, target).weight
            a, b = torch.randn(rank, weight.shape[1]) * 0.3, torch.randn(weight.shape[0], rank) * 0.3
            weight.data += scale * (b @ a)
            for which, x in ((False, a), (True, b)):
                tensors.append((key(store, number, target, which), "F32", list(x.shape), x.numpy().tobytes()))
    with tempfile.TemporaryDirectory() as folder:
        store.call("adapter_config_write", folder.encode(), ctypes.byref(config))
        store.write_safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
        loaded = PeftModel.from_pretrained(copy.deepcopy(base), folder)
    ids = torch.arange(12).reshape(2, 6) % 11
    with torch.no_grad():
        plain, theirs, ours = base(ids).logits, loaded.eval()(ids).logits, by_hand(ids).logits
    apart, moved = (theirs - ours).abs().max().item(), (theirs - plain).abs().max().item()
    print(f"{'+'.join(chosen)}: rank {rank} alpha {alpha} rslora {rslora}: "
          f"largest difference {apart:.2e}, the adapter moves logits by {moved:.2f}")
    assert apart < 1e-5 * max(1, moved) and moved > 0.1


def main():
    torch.manual_seed(0)
    base = Qwen2ForCausalLM(Qwen2Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=11, max_position_embeddings=32, initializer_range=0.3)).eval()
    store = Store()
    check(store, base, TARGETS, 4, 8.0, False)
    check(store, base, ["q_proj", "v_proj"], 2, 3.5, False)
    check(store, base, ["gate_proj", "down_proj", "k_proj"], 8, 16.0, True)
    print("ok")


if __name__ == "__main__":
    main()
