"""check_llama2c_with_hf.py FOLDER - transformers runs a converted llama2.c model and gives the golden numbers.

FOLDER holds stories260K.bin and golden.json (greedy ids, logits of the first step, losses along the way).
"""
import json
import os
import sys
import tempfile

import torch
from transformers import LlamaForCausalLM

from store_lib import Store


def main(assets):
    with open(os.path.join(assets, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    ids = golden["greedy_ids"]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "model")
        Store().call("llama2c_convert", os.path.join(assets, "stories260K.bin").encode(), out.encode())
        model, info = LlamaForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model = model.double().eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        generated = model.generate(torch.tensor([ids[:1]]), max_new_tokens=len(ids) - 1, do_sample=False,
                                   pad_token_id=0)[0].tolist()
    nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    apart = (logits[0, :8] - torch.tensor(golden["first_step_logits_0_7"], dtype=torch.float64)).abs().max().item()
    apart_nll = (nll[:16] - torch.tensor(golden["nll_first16"], dtype=torch.float64)).abs().max().item()
    print(f"greedy ids equal: {generated == ids} ({len(ids)}); first logits differ by {apart:.1e}; "
          f"losses by {apart_nll:.1e}; mean loss {nll.mean():.12f} against {golden['mean_nll_greedy']:.12f}")
    assert generated == ids and apart < 1e-4 and apart_nll < 1e-4
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
