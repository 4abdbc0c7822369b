#!/usr/bin/env python3
"""gpu_peer.py - the speed of Hugging Face transformers + PyTorch at one shape, as a JSON line.

    gpu_peer.py --model 0.5b|1.5b|7b --mode full|lora --rank 128 --batch 8 --seq 1024 [--accum 1] [--recompute]
                [--compile]

Random bf16 weights, SDPA flash attention, fused AdamW, states in bf16. Adapters are plain modules, so that no PEFT is
needed.
"""
import argparse, json, math, time
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPES = {
    "0.5b": dict(hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                 intermediate_size=4864, vocab_size=151936, tie_word_embeddings=True),
    "1.5b": dict(hidden_size=1536, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
                 intermediate_size=8960, vocab_size=151936, tie_word_embeddings=True),
    "7b": dict(hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
               intermediate_size=18944, vocab_size=152064, tie_word_embeddings=False),
}


class Lora(torch.nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.a = torch.nn.Parameter(torch.randn(rank, base.in_features, dtype=torch.bfloat16,
                                                device=base.weight.device) / math.sqrt(base.in_features))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank, dtype=torch.bfloat16,
                                                device=base.weight.device))

    def forward(self, x):
        return self.base(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, self.a), self.b) * 2.0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="0.5b")
    p.add_argument("--mode", default="full")
    p.add_argument("--rank", type=int, default=128)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--compile", action="store_true")
    o = p.parse_args()
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[o.model], max_position_embeddings=32768, rope_theta=1e6)
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2ForCausalLM(config)
    if o.mode == "lora":
        for q in model.parameters():
            q.requires_grad_(False)
        for layer in model.model.layers:
            for owner in (layer.self_attn, layer.mlp):
                for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
                    if hasattr(owner, name):
                        setattr(owner, name, Lora(getattr(owner, name), o.rank))
    if o.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    model.config.use_cache = False
    params = [q for q in model.parameters() if q.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-5, fused=True)
    run = torch.compile(model) if o.compile else model
    ids = torch.randint(0, 150000, (o.batch, o.seq), device="cuda")

    def step():
        for _ in range(o.accum):
            loss = run(input_ids=ids, labels=ids).loss / o.accum
            loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    began = time.time()
    for _ in range(o.steps):
        loss = step()
    torch.cuda.synchronize()
    seconds = time.time() - began
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({"peer": "transformers" + ("+compile" if o.compile else ""), "torch": torch.__version__,
                      "model": o.model, "mode": o.mode,
                      "batch": o.batch, "seq": o.seq, "accum": o.accum, "recompute": o.recompute,
                      "trainable": sum(q.numel() for q in params),
                      "tokens_per_s": o.steps * o.accum * o.batch * o.seq / seconds, "device_bytes": total - free,
                      "peak_tensor_bytes": torch.cuda.max_memory_allocated(), "loss": float(loss.detach()) * o.accum}))


if __name__ == "__main__":
    main()
