"""make_store_fixtures.py - writes tests/store/fixtures with the libraries whose files snug must read.

Values are formulas that the tests repeat: element i of a tensor is (i - 2) / 2, or i for whole numbers.
"""
import os
import shutil

import torch
from huggingface_hub import save_torch_state_dict
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "store", "fixtures")


def ramp(shape, dtype):
    n = 1
    for d in shape:
        n *= d
    i = torch.arange(n)
    values = (i - 2) / 2 if dtype.is_floating_point else i % 2 if dtype == torch.bool else i
    return values.to(dtype).reshape(shape)


def single():
    kinds = {
        "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
        "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
        "bool": torch.bool, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
        "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
    }
    tensors = {f"t.{name}": ramp([2, 3], dtype) for name, dtype in kinds.items()}
    tensors["scalar"] = ramp([], torch.float32)
    tensors["empty"] = ramp([0, 4], torch.float32)
    tensors["größe"] = ramp([5], torch.bfloat16)
    metadata = {"format": "pt", "note": 'a "quoted" wörd'}
    save_file(tensors, os.path.join(ROOT, "single.safetensors"), metadata=metadata)


def sharded():
    tensors = {f"layer.{i}": ramp([3, 4], torch.float32) + i for i in range(5)}
    folder = os.path.join(ROOT, "sharded")
    os.makedirs(folder)
    save_torch_state_dict(tensors, folder, max_shard_size=100)


def adapter():
    torch.manual_seed(1)
    config = Qwen2Config(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, vocab_size=11, max_position_embeddings=16)
    lora = LoraConfig(r=2, lora_alpha=6, lora_dropout=0.25, target_modules=["v_proj", "q_proj", "down_proj"],
                      task_type="CAUSAL_LM", use_rslora=True)
    model = get_peft_model(Qwen2ForCausalLM(config), lora)
    model.peft_config["default"].base_model_name_or_path = "tiny/qwen2"
    folder = os.path.join(ROOT, "adapter")
    model.save_pretrained(folder)
    readme = os.path.join(folder, "README.md")
    if os.path.exists(readme):
        os.remove(readme)


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    single()
    sharded()
    adapter()
    for folder, _, names in os.walk(ROOT):
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)
