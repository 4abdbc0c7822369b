#!/usr/bin/env python3
"""cpu_peer.py - training speed of PyTorch (fp32, transformers) at one shape on the CPU, as a JSON line.

    cpu_peer.py --shape smollm2-135m|stories-15m --batch 1 --seq 512 --threads 2 --steps 5
"""
import argparse, json, resource, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "smollm2-135m": dict(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                         intermediate_size=1536, vocab_size=49152),
    "stories-15m": dict(hidden_size=288, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                        intermediate_size=768, vocab_size=32000),
}
p = argparse.ArgumentParser()
p.add_argument("--shape", default="smollm2-135m")
p.add_argument("--batch", type=int, default=1)
p.add_argument("--seq", type=int, default=512)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--steps", type=int, default=5)
o = p.parse_args()
torch.set_num_threads(o.threads)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SHAPES[o.shape], tie_word_embeddings=True, max_position_embeddings=8192))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
ids = torch.randint(0, 30000, (o.batch, o.seq))


def step():
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


step()
step()
times = []
for _ in range(o.steps):
    began = time.perf_counter()
    step()
    times.append(time.perf_counter() - began)
print(json.dumps({"peer": "pytorch " + torch.__version__, "shape": o.shape, "batch": o.batch, "seq": o.seq,
                  "threads": o.threads,
                  "tokens_per_s": o.batch * o.seq / sorted(times)[len(times) // 2],
                  "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
