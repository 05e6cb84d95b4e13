#!/usr/bin/env python3
"""Write small adapters with what PEFT computes of them: logits, losses, gradients, 20 steps of training.

Every case below becomes a directory in tests/data/adapters, made from a model of tests/data/models:

    adapter_config.json, adapter_model.safetensors   written by PEFT's save_pretrained; B is not zero
    golden.safetensors    of every sample s: input_ids.s, labels.s I64 [tokens], logits.s F32 [tokens, vocab];
                          of the first step: grad.KEY F32, before clipping, of the mean loss of its batch;
                          of every step: losses, grad_norms (before clipping), learning_rates F32 [steps];
                          after the last: final.KEY F32. KEYs are those of adapter_model.safetensors
    golden.json           model, options of the training, idle experts, smallest router gap, versions

All in float32 with eager attention. A step's loss is the sum over the trained tokens of its samples
divided by their number; AdamW, clipping and the schedule are torch's and transformers'. Parameters that
got no gradient (experts without rows) are stepped with a gradient of zero. Two environments, as for
tools/make_model_goldens.py, each with peft==0.21.2:

    python tools/make_sft_goldens.py                      # write, in each environment
    python tools/make_sft_goldens.py --check              # compute again and compare, in each
"""

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import get_cosine_schedule_with_warmup

from make_model_goldens import (CANDIDATES, SIGMOID_FAMILIES, WIDE_GAP, choice_biases, experts_per_token, load,
                                router_gaps, router_logits, seed_of, values_of_routers)
from model_fixtures import V4, V5

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
TRAINING = {"steps": 20, "samples_per_step": 2, "lr": 5e-3, "schedule": "cosine", "warmup_steps": 3,
            "beta1": 0.9, "beta2": 0.999, "adam_eps": 1e-8, "weight_decay": 0.01, "clip": 1.0}
LEAST_GAP = 2e-4  # of router probabilities in any step: float noise must not change the experts
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LATENT = ["q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
LYING_ACROSS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


@dataclass(frozen=True)
class Case:
    name: str
    transformers: str
    model: str
    covers: str
    lora: dict
    lengths: tuple[int, ...] = (9, 6, 11, 7)
    idle: bool = False  # some expert gets no row in the first step


CASES = (
    Case("qwen3_moe", V4, "qwen3_moe-v4", "attention and experts, q and k norms",
         {"r": 2, "lora_alpha": 4, "target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"]}),
    Case("qwen2_moe-rslora-idle", V4, "qwen2_moe-v4",
         "all four kinds of targets, rank-stabilised, experts without rows",
         {"r": 3, "lora_alpha": 2, "use_rslora": True,
          "target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"]},
         lengths=(3, 2, 5, 4), idle=True),
    Case("olmoe-patterns", V4, "olmoe-v4", "rank_pattern, alpha_pattern, clip_qkv",
         {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"],
          "rank_pattern": {"q_proj": 5, r"layers\.1\.mlp\.experts\.[0-3]\.down_proj": 1},
          "alpha_pattern": {r"experts\.\d+\.up_proj": 1.5}}),
    Case("mixtral-some", V4, "mixtral-v4-window-sharded", "some experts have no adapter, or only some of the three",
         {"r": 2, "lora_alpha": 2, "target_modules": [
             "k_proj", "o_proj", "experts.0.w1", "experts.0.w2", "experts.0.w3", "experts.2.w2", "experts.3.w1"]}),
    Case("granitemoe-joined", V4, "granitemoe-v4", "input_linear and output_linear as target_parameters: gate and up "
         "share A; multipliers",
         {"r": 2, "lora_alpha": 4, "target_modules": ATTENTION, "target_parameters": [
             "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"]}),
    Case("mixtral-fused", V5, "mixtral-v5-fused", "the fused layout of transformers 5: gate and up share A",
         {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"],
          "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    Case("glm4_moe", V4, "glm4_moe-v4", "sigmoid router with a bias and groups, an ungated shared expert, a dense "
         "layer, half of a head rotated",
         {"r": 2, "lora_alpha": 4, "target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"]}),
    Case("ernie4_5_moe", V4, "ernie4_5_moe-v4", "rotation of pairs, softmax router with a bias of the choice",
         {"r": 2, "lora_alpha": 4, "target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"]}),
    Case("hy_v3-fused", V5, "hy_v3-v5-fused", "sigmoid router of transformers 5, fused experts, a dense layer",
         {"r": 2, "lora_alpha": 4, "target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"],
          "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    Case("gpt_oss-attention", V4, "gpt_oss-v4", "sinks, windows, biases and clamped gating on the way of gradients",
         {"r": 2, "lora_alpha": 4, "target_modules": ATTENTION}, lengths=(14, 6, 12, 7)),
    Case("gpt_oss-experts4", V4, "gpt_oss-v4", "attention and experts whose parameters lie across: PEFT takes in for "
         "out; gates and ups take turns and share A",
         {"r": 2, "lora_alpha": 4, "target_modules": ATTENTION, "target_parameters": LYING_ACROSS},
         lengths=(14, 6, 12, 7)),
    Case("gpt_oss-experts5", V5, "gpt_oss-v5", "the same in transformers 5, where PEFT knows that they lie across",
         {"r": 3, "lora_alpha": 2, "use_rslora": True, "target_modules": ["q_proj", "o_proj"],
          "target_parameters": LYING_ACROSS}),
    Case("deepseek_v3", V4, "deepseek_v3-v4", "latent attention with an inner query row, pairs rotated, yarn",
         {"r": 2, "lora_alpha": 4, "target_modules": [*LATENT, "gate_proj", "up_proj", "down_proj"]}),
    Case("deepseek_v3-fused", V5, "deepseek_v3-v5-fused", "latent attention without an inner query row, halves rotated, "
         "biases, fused experts",
         {"r": 3, "lora_alpha": 4, "target_modules": LATENT,
          "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    Case("deepseek_v2-latent", V5, "deepseek_v2-v5", "softmax router that chooses groups; of a layer kv_b_proj alone, "
         "with a rank of its own",
         {"r": 2, "lora_alpha": 3, "target_modules": ["0.self_attn.q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"],
          "rank_pattern": {r"layers\.1\.self_attn\.kv_b_proj": 5}}),
    Case("glm4_moe_lite-attention", V5, "glm4_moe_lite-v5", "latent attention of wider values than keys",
         {"r": 2, "lora_alpha": 4, "target_modules": LATENT}),
    Case("qwen3_next", V4, "qwen3_next-v4", "gated delta nets (in_proj_qkvz, in_proj_ba), gated attention, a gated shared "
         "expert, a dense layer",
         {"r": 2, "lora_alpha": 4, "target_modules": [
             *ATTENTION, "in_proj_qkvz", "in_proj_ba", "out_proj", "gate_proj", "up_proj", "down_proj"]}),
    Case("qwen3_next-fused", V5, "qwen3_next-v5-fused", "the same in transformers 5: fused experts, biases of gated "
         "attention",
         {"r": 2, "lora_alpha": 4, "target_modules": [
             *ATTENTION, "in_proj_qkvz", "in_proj_ba", "out_proj", "gate_proj", "up_proj", "down_proj"],
          "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    Case("qwen3_5_moe", V5, "qwen3_5_moe-v5", "separate projections of gated delta nets (in_proj_qkv, in_proj_z, "
         "in_proj_b, in_proj_a), gated attention",
         {"r": 2, "lora_alpha": 4, "target_modules": [
             *ATTENTION, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", "gate_proj", "up_proj",
             "down_proj"],
          "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
)


def load_base(case: Case) -> torch.nn.Module:
    return load(DATA / "models" / case.model, text_alone=True)


def make_adapter(case: Case) -> PeftModel:
    model = get_peft_model(load_base(case), LoraConfig(task_type="CAUSAL_LM", **case.lora))
    generator = torch.Generator().manual_seed(seed_of(case.name))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                parameter.uniform_(-1, 1, generator=generator).mul_(parameter.shape[-1] ** -0.5)
            elif "lora_B" in name:
                parameter.normal_(generator=generator).mul_(0.15)
    return model.eval()


def adapter_parameters(model: PeftModel) -> dict[str, torch.nn.Parameter]:
    """By the keys of adapter_model.safetensors."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


# ---------------------------------------------------------------------------------------------
# Samples


@torch.no_grad()
def choose_sample(model: PeftModel, length: int, generator: torch.Generator) -> torch.Tensor:
    """Random tokens without near-ties in the routers; as choose_tokens of make_model_goldens.py."""
    vocab = model.config.vocab_size
    ids = torch.randint(3, vocab, (length,), generator=generator)
    for place in range(length):
        tried = ids.repeat(CANDIDATES, 1)
        tried[:, place] = torch.randint(3, vocab, (CANDIDATES,), generator=generator)
        gaps = router_gaps(model, tried)[:, place]
        wide = (gaps >= WIDE_GAP).nonzero()
        ids = tried[wide[0].item() if len(wide) else gaps.argmax().item()]
    return ids


def make_labels(ids: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Two thirds of the tokens are trained, the last one always."""
    labels = torch.where(torch.rand(ids.shape, generator=generator) < 2 / 3, ids, -100)
    labels[-1] = ids[-1]
    return labels


def make_samples(case: Case, model: PeftModel, attempt: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed_of(f"{case.name} {attempt}"))
    ids = [choose_sample(model, length, generator) for length in case.lengths]
    return [(i, make_labels(i, generator)) for i in ids]


@torch.no_grad()
def experts_chosen(model: PeftModel, ids: torch.Tensor) -> list[set[int]]:
    """For every layer with experts."""
    k = experts_per_token(model.config)
    if model.config.model_type in (*SIGMOID_FAMILIES, "deepseek_v2"):
        values = [values for values, _ in values_of_routers(model, ids[None])]
    else:
        values = router_logits(model, ids[None])
        biases = choice_biases(model)
        if biases:
            values = [layer.float().softmax(dim=-1) + bias for layer, bias in zip(values, biases)]
    return [set(layer.float().topk(k, dim=-1).indices.flatten().tolist()) for layer in values]


def idle_experts(model: PeftModel, samples) -> list[list[int]]:
    """Those without a row in the first step, for every layer with experts."""
    names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    count = next(getattr(model.config, name) for name in names if hasattr(model.config, name))
    chosen = [experts_chosen(model, ids) for ids, _ in samples[:TRAINING["samples_per_step"]]]
    return [sorted(set(range(count)) - set.union(*layer)) for layer in zip(*chosen)]


# ---------------------------------------------------------------------------------------------
# Training


def sample_loss(model: PeftModel, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Summed over the trained tokens."""
    logits = model(ids[None], use_cache=False).logits[0].float()
    return torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")


def batch_of(samples, step: int):
    size = TRAINING["samples_per_step"]
    return [samples[(step * size + i) % len(samples)] for i in range(size)]


def train(model: PeftModel, samples) -> tuple[dict[str, torch.Tensor], float]:
    """Tensors of golden.safetensors, and the smallest router gap of all steps."""
    parameters = adapter_parameters(model)
    optimizer = torch.optim.AdamW(parameters.values(), lr=TRAINING["lr"], eps=TRAINING["adam_eps"],
                                  betas=(TRAINING["beta1"], TRAINING["beta2"]),
                                  weight_decay=TRAINING["weight_decay"])
    schedule = get_cosine_schedule_with_warmup(optimizer, TRAINING["warmup_steps"], TRAINING["steps"])
    tensors, gap = {}, 1.0
    losses, norms, rates = [], [], []
    for step in range(TRAINING["steps"]):
        batch = batch_of(samples, step)
        gap = min(gap, *(router_gaps(model, ids[None]).min().item() for ids, _ in batch))
        trained = sum(int((labels[1:] != -100).sum()) for _, labels in batch)
        loss = sum(sample_loss(model, *sample) for sample in batch) / trained
        optimizer.zero_grad()
        loss.backward()
        for parameter in parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if step == 0:
            tensors |= {f"grad.{key}": p.grad.clone() for key, p in parameters.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), TRAINING["clip"]).item())
        losses.append(loss.item())
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    tensors |= {f"final.{key}": p.detach().clone() for key, p in parameters.items()}
    tensors |= {"losses": torch.tensor(losses), "grad_norms": torch.tensor(norms), "learning_rates": torch.tensor(rates)}
    return tensors, gap


@torch.no_grad()
def logits_of(model: PeftModel, ids: torch.Tensor) -> torch.Tensor:
    return model(ids[None], use_cache=False).logits[0].float().contiguous()


def compute(case: Case, model: PeftModel, samples) -> tuple[dict[str, torch.Tensor], float]:
    tensors = {}
    for index, (ids, labels) in enumerate(samples):
        tensors |= {f"input_ids.{index}": ids, f"labels.{index}": labels, f"logits.{index}": logits_of(model, ids)}
    trained, gap = train(model, samples)
    return tensors | trained, gap


# ---------------------------------------------------------------------------------------------


def save_adapter(case: Case, model: PeftModel, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    config = json.loads((out / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = case.model
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_case(case: Case, out: Path) -> None:
    for attempt in range(100):
        model = make_adapter(case)
        samples = make_samples(case, model, attempt)
        idle = idle_experts(model, samples)
        if case.idle and not all(idle):
            continue
        save_adapter(case, model, out)
        tensors, gap = compute(case, model, samples)
        if gap >= LEAST_GAP:
            break
    else:
        raise ValueError(f"{case.name}: no samples without near-ties")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "golden.safetensors")
    golden = {"model": case.model, "covers": case.covers, "samples": len(samples), "training": TRAINING,
              "idle_experts": idle, "min_router_gap": float(f"{gap:.3g}"),
              "transformers_version": transformers.__version__, "peft_version": peft.__version__,
              "torch_version": torch.__version__.split("+")[0]}
    (out / "golden.json").write_text(json.dumps(golden, indent=2) + "\n", encoding="utf-8")
    for path in out.iterdir():
        path.chmod(0o644)
    losses = tensors["losses"]
    print(f"{case.name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, gradient norms {tensors['grad_norms'].min():.2f} to "
          f"{tensors['grad_norms'].max():.2f}, router gap {gap:.2g}, idle {idle}")


def check_case(case: Case, out: Path) -> None:
    golden = load_file(out / "golden.safetensors")
    model = PeftModel.from_pretrained(load_base(case), out, is_trainable=True).eval()
    samples = [(golden[f"input_ids.{i}"], golden[f"labels.{i}"]) for i in range(len(case.lengths))]
    tensors, _ = compute(case, model, samples)
    worst = max(((tensors[key] - value).float().norm() / value.float().norm().clamp(min=1e-12), key)
                for key, value in golden.items())
    print(f"{case.name}: largest relative difference {worst[0]:.2g} ({worst[1]})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DATA / "adapters")
    parser.add_argument("--only", default="", help="part of the name of the cases to make")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    if transformers.__version__ not in (V4, V5):
        parser.error(f"needs transformers {V4} or {V5}, found {transformers.__version__}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for case in CASES:
        if case.transformers == transformers.__version__ and args.only in case.name:
            (check_case if args.check else write_case)(case, args.out / case.name)


if __name__ == "__main__":
    main()
