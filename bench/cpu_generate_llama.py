#!/usr/bin/env python3
"""cpu_generate_llama.py - one answer by llama.cpp on the CPU: prefill of 512 tokens, decode of 64, as a JSON line.

    cpu_generate_llama.py --model DIR --dtype fp32|bf16|q8_0|q4_0 --threads 2 [--ids 1,2,3]

DIR: a Llama folder as Hugging Face keeps it, written to a GGUF file beside it first. q8_0, q4_0: the projections
alone, so that embedding and head are kept as in the folder, as snug does. --ids: print the greedy continuation instead.
Needs llama-cpp-python, gguf and numpy.
"""
import argparse, ctypes, glob, json, os, resource, time
import gguf, numpy as np
import llama_cpp as ll

p = argparse.ArgumentParser()
p.add_argument("--model", required=True)
p.add_argument("--dtype", default="bf16")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--ids", default="")
o = p.parse_args()
config = json.load(open(o.model + "/config.json"))
heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
types = {"fp32": "F32", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
path = f"{o.model}/{o.dtype}.gguf"


def tensors():
    for name in sorted(glob.glob(o.model + "/*.safetensors")):
        data = np.memmap(name, dtype=np.uint8, mode="r")
        n = int(data[:8].view(np.uint64)[0])
        for key, t in json.loads(bytes(data[8:8 + n])).items():
            if key == "__metadata__":
                continue
            raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            if t["dtype"] == "BF16":
                x = (np.array(raw.view(np.uint16), dtype=np.uint32) << 16).view(np.float32)
            else:
                x = np.array(raw.view(np.float32))
            yield key, t["dtype"], x.reshape(t["shape"])


def pairs(x, n):  # llama.cpp turns neighbours, Hugging Face halves
    return x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write():
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(4096)
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(groups)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config.get("rope_theta", 10000.0))
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("none")
    for key, dtype, x in tensors():
        if ".q_proj." in key or ".k_proj." in key:
            x = pairs(x, heads if ".q_proj." in key else groups)
        kind = "F32" if x.ndim == 1 else types[o.dtype] if "_proj." in key else "BF16" if dtype == "BF16" else "F32"
        kind = gguf.GGMLQuantizationType[kind]
        w.add_tensor(names.get_name(key, (".weight", ".bias")), gguf.quants.quantize(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if not os.path.exists(path):
    write()
quiet = ll.llama_log_callback(lambda *a: None)
ll.llama_log_set(quiet, ctypes.c_void_p(0))
ll.llama_backend_init()
mp = ll.llama_model_default_params()
mp.use_mmap = False
model = ll.llama_model_load_from_file(path.encode(), mp)
cp = ll.llama_context_default_params()
cp.n_ctx, cp.n_batch, cp.n_ubatch = 1024, 512, 512
cp.n_threads = cp.n_threads_batch = o.threads
context = ll.llama_init_from_model(model, cp)


def feed(ids):
    a = (ll.llama_token * len(ids))(*ids)
    if ll.llama_decode(context, ll.llama_batch_get_one(a, len(ids))):
        raise SystemExit("llama_decode failed")
    return int(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, -1), (config["vocab_size"],)).argmax())


def cpu():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def run(ids, n_new):
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    began, began_cpu = time.perf_counter(), cpu()
    out = [feed(ids)]
    prefill, prefill_cpu, began, began_cpu = time.perf_counter() - began, cpu() - began_cpu, time.perf_counter(), cpu()
    for _ in range(n_new):
        out.append(feed(out[-1:]))
    return out, (prefill, prefill_cpu), (time.perf_counter() - began, cpu() - began_cpu)


if o.ids:
    print(json.dumps(run([int(i) for i in o.ids.split(",")], 15)[0]))
else:
    run(list(range(1, 9)), 4)
    _, prefill, _ = run(list(range(1000, 1512)), 0)
    _, _, decode = run(list(range(1, 9)), 64)
    print(json.dumps({"decode_tokens_per_s": 64 / decode[0], "prefill_tokens_per_s": 512 / prefill[0],
                      "decode_cpu_s": decode[1],
                      "prefill_cpu_s": prefill[1]}))
