#!/usr/bin/env python3
"""make_quant_fixtures.py - writes tests/quantise/fixtures/: what bitsandbytes makes of known numbers.

  formats.safetensors   values whose blocks all reach their row's maximum (so that a doubly quantised maximum is
                        exact), with the codes and maxima that bitsandbytes gives for them
  expected.json         levels; RMS errors of its nf4 (with and without nested statistics) and of its int8 by rows on
                        normal data; the loss of the model below
  bnb/                  a tiny Llama folder whose projections are bitsandbytes NF4, as its Linear4bit saves them:
                        nested statistics, plain ones (o_proj), blocks of 128 (down_proj)
  k_proj.safetensors    one of its tensors as bitsandbytes dequantises it
  rows.jsonl            the ids whose loss expected.json holds: transformers, fp32, on the dequantised weights

Needs torch, transformers, safetensors, numpy and bitsandbytes (the CPU is enough).
"""
import json
import os
import sys

import torch
import bitsandbytes as bnb
import bitsandbytes.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = sys.argv[1] if len(sys.argv) > 1 else "tests/quantise/fixtures"
BNB = os.path.join(OUT, "bnb")
os.makedirs(BNB, exist_ok=True)
gen = torch.Generator().manual_seed(11)


def rms(a, b):
    return float(((a - b).double() ** 2).mean().sqrt())


# ---- formats ----
# 255 * 2^-9 as every block's maximum: its 255th part, and that times 255, are exact in fp32
top = 255.0 / 512
x = torch.randn(12, 192, generator=gen) * 0.12
x = x.clamp(-top, top)
x[:, ::64] = top
x[1::2, ::64] = -top
code = F.get_4bit_type("nf4", device="cpu")
middle = (code[:-1] + code[1:]) / 2 * top
x[3, 1:16], x[4, 1:16], x[5, 1:16] = middle, torch.nextafter(middle, middle + 1), torch.nextafter(middle, middle - 1)
x[6, 1:17] = code * top
packed, state = F.quantize_4bit(x, blocksize=64, compress_statistics=False, quant_type="nf4")
save_file({"x": x, "absmax": state.absmax, "packed": packed.reshape(12, 96)}, os.path.join(OUT, "formats.safetensors"))

normal = torch.randn(1024, 1024, generator=gen)
expected = {"levels": [float(v) for v in code]}
for name, nested in (("nf4_rms", False), ("nf4_nested_rms", True)):
    q, s = F.quantize_4bit(normal, blocksize=64, compress_statistics=nested, quant_type="nf4")
    expected[name] = rms(F.dequantize_4bit(q, s), normal)
q8, s8, _ = F.int8_vectorwise_quant(normal.to(torch.float16))
expected["int8_rms"] = rms(q8.float() * s8.float()[:, None] / 127, normal.to(torch.float16).float())

# ---- a model ----
config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0,
                     tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
torch.manual_seed(5)
model = LlamaForCausalLM(config).float().eval()
tensors = {}
with torch.no_grad():
    for name, p in model.named_parameters():
        if "proj" not in name:
            p.copy_(1 + 0.1 * torch.randn(p.shape, generator=gen) if "norm" in name
                    else 0.3 * torch.randn(p.shape, generator=gen))
            tensors[name] = p.detach().clone()
            continue
        p.copy_(0.15 * torch.randn(p.shape, generator=gen))
        layer = bnb.nn.Linear4bit(p.shape[1], p.shape[0], bias=False, quant_type="nf4",
                                  compress_statistics="o_proj" not in name)
        layer.weight = bnb.nn.Params4bit(p.detach().clone(), requires_grad=False, quant_type="nf4",
                                         compress_statistics="o_proj" not in name,
                                         blocksize=128 if "down" in name else 64)
        layer.weight = layer.weight.to("cpu")  # quantises
        for key, value in layer.state_dict().items():
            tensors[name[:-len("weight")] + key] = value
        p.copy_(F.dequantize_4bit(layer.weight.data, layer.weight.quant_state))
        if "k_proj" in name:
            save_file({name: p.detach().clone()}, os.path.join(OUT, "k_proj.safetensors"))
save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, os.path.join(BNB, "model.safetensors"),
          {"format": "pt"})
fields = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
          "attention_bias": False,
          "rope_theta": 10000.0}
for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "bos_token_id", "eos_token_id",
            "hidden_act"):
    fields[key] = getattr(config, key)
fields["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                                 "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
                                 "bnb_4bit_compute_dtype": "float32", "bnb_4bit_quant_storage": "uint8"}
with open(os.path.join(BNB, "config.json"), "w") as f:
    json.dump(fields, f, indent=2)
    f.write("\n")

ids = torch.randint(3, 64, (6, 40), generator=gen)
with open(os.path.join(OUT, "rows.jsonl"), "w") as f:
    for row in ids:
        f.write(json.dumps({"ids": row.tolist()}) + "\n")
with torch.no_grad():
    logp = torch.log_softmax(model(ids).logits[:, :-1].double(), -1)
    expected["bnb_loss"] = float(-logp.gather(-1, ids[:, 1:, None]).mean())
with open(os.path.join(OUT, "expected.json"), "w") as f:
    json.dump(expected, f, indent=1)
    f.write("\n")
