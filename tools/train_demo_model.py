#!/usr/bin/env python3
"""Train the demo model: a small qwen3_moe that writes King James English.

The model is small enough to be kept in the repository (about 8 MB) and good enough that its text
reads as sentences. Its tokenizer is a byte-level BPE with the pre-tokenizer of Qwen2 and Qwen3.

Usage, on Debian 12 (under an hour on two CPU cores; --speed-up 8 gives a quick rough one):

    apt-get install bible-kjv            # the text, in the public domain
    pip install torch==2.9.1 transformers==4.57.3 tokenizers==0.22.2 safetensors numpy
    python tools/train_demo_model.py --out tests/data/demo-model
    python tools/make_demo_goldens.py    # then renew the goldens of the demo model

Training is seeded. On another CPU or with another number of threads the weights come out
slightly different, so the goldens have to be renewed after every training. Most of it is done on
short windows, which is fast; a second stage on long ones teaches the far positions. The model is
saved as training goes on, and --stage 2 alone continues from a saved one.
"""

import argparse
import copy
import math
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen2TokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 2048
MAX_CONTEXT = 2048
HELD_OUT_BOOK = "Ruth"


@dataclass
class Stage:
    context: int  # tokens of a window
    batch: int  # windows of a step
    steps: int
    peak_rate: float  # of learning: warmed up to, then down a cosine to a fiftieth of it
    cosine_steps: int  # where the cosine ends; the stage may stop before


STAGES = {
    1: Stage(256, 8, steps=1800, peak_rate=3e-3, cosine_steps=3200),
    2: Stage(MAX_CONTEXT, 1, steps=250, peak_rate=1.2e-3, cosine_steps=250),
}
SAVE_EVERY = 50  # steps

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


# ---------------------------------------------------------------------------------------------
# Text


def read_bible() -> tuple[list[str], str]:
    """Returns the chapters to train on and the held-out book, one verse a line, no numbers."""
    printed = subprocess.run(
        ["bible", "-f", "Gen1:1-Rev22:21"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    ).stdout
    chapters: dict[tuple[str, str], list[str]] = {}
    for line in printed.splitlines():
        match = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):\d+ (.+)", line.rstrip())
        if match is None:
            raise ValueError(f"not a verse: {line!r}")
        book, chapter, verse = match.groups()
        chapters.setdefault((book, chapter), []).append(verse)
    text_of = {key: "\n".join(verses) + "\n" for key, verses in chapters.items()}
    training = [text for (book, _), text in text_of.items() if book != HELD_OUT_BOOK]
    held_out = [text for (book, _), text in text_of.items() if book == HELD_OUT_BOOK]
    if not held_out:
        raise ValueError(f"no book named {HELD_OUT_BOOK}")
    return training, "".join(held_out)


# ---------------------------------------------------------------------------------------------
# Tokenizer


def train_tokenizer(chapters: list[str]) -> Qwen2TokenizerFast:
    """Trains the BPE; the special tokens come after its vocabulary, as in the Qwen family."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(chapters, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ))
    bpe.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    tokenizer = Qwen2TokenizerFast(
        tokenizer_object=bpe, unk_token=None, bos_token=None, eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT, model_max_length=MAX_CONTEXT, clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(tokenizer: Qwen2TokenizerFast, out: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json; the other forms repeat what is in them."""
    written = tokenizer.save_pretrained(out, save_jinja_files=False)
    for name in {Path(path).name for path in written} - {"tokenizer.json", "tokenizer_config.json"}:
        (out / name).unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------
# Model


def make_model(tokenizer: Qwen2TokenizerFast) -> Qwen3MoeForCausalLM:
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    config = Qwen3MoeConfig(
        vocab_size=VOCAB_SIZE, hidden_size=192, intermediate_size=384, num_hidden_layers=5,
        num_attention_heads=8, num_key_value_heads=2, head_dim=32,
        max_position_embeddings=MAX_CONTEXT,
        num_experts=16, num_experts_per_tok=4, moe_intermediate_size=64, norm_topk_prob=True,
        router_aux_loss_coef=0.01, tie_word_embeddings=True, rope_theta=10000.0,
        bos_token_id=end, eos_token_id=end,
    )
    model = Qwen3MoeForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=end, eos_token_id=end, pad_token_id=end,
        do_sample=True, temperature=0.7, top_k=40, top_p=0.95,
    )
    return model


def sorted_experts_forward(self: Qwen3MoeSparseMoeBlock, hidden: torch.Tensor):
    """The block's forward with rows sorted by expert: the same sums, less time in indexing."""
    batch, length, width = hidden.shape
    rows = hidden.reshape(-1, width)
    router_logits = self.gate(rows)
    weights, chosen = torch.topk(F.softmax(router_logits, dim=1, dtype=torch.float), self.top_k)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    order = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=self.num_experts).tolist()
    by_expert = rows[order // self.top_k].split(counts)
    computed = [expert(part) for expert, part in zip(self.experts, by_expert)]
    weighted = torch.cat(computed) * weights.flatten()[order, None].to(hidden.dtype)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    out = weighted[place].view(-1, self.top_k, width).sum(dim=1)
    return out.view(batch, length, width), router_logits


def save_model(model: Qwen3MoeForCausalLM, out: Path) -> None:
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)


# ---------------------------------------------------------------------------------------------
# Training


def learning_rate(step: int, stage: Stage) -> float:
    warmup = min(100, stage.cosine_steps // 10)
    if step < warmup:
        return stage.peak_rate * (step + 1) / warmup
    progress = (step - warmup) / (stage.cosine_steps - warmup)
    return stage.peak_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizer(model: Qwen3MoeForCausalLM) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


@torch.no_grad()
def held_out_loss(model: Qwen3MoeForCausalLM, ids: torch.Tensor) -> float:
    model.eval()
    logits = model(ids[None, :1024]).logits[0]
    model.train()
    return F.cross_entropy(logits[:-1], ids[1:1024]).item()


def train(model: Qwen3MoeForCausalLM, stage: Stage, stream: torch.Tensor, held_out: torch.Tensor,
          out: Path) -> None:
    optimizer = make_optimizer(model)
    model.train()
    started = time.time()
    for step in range(stage.steps):
        starts = torch.randint(0, stream.numel() - stage.context, (stage.batch,)).tolist()
        batch = torch.stack([stream[s:s + stage.context] for s in starts])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, stage)
        output = model(batch, labels=batch, output_router_logits=True)
        output.loss.backward()  # label loss + router_aux_loss_coef * load-balancing loss
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = step == stage.steps - 1
        if step % 25 == 0 or last:
            seconds = time.time() - started
            speed = (step + 1) * batch.numel() / seconds
            print(f"step {step} loss {output.loss.item():.3f} aux {output.aux_loss.item():.3f} "
                  f"lr {learning_rate(step, stage):.2e} {seconds:.0f} s {speed:.0f} tokens/s",
                  flush=True)
        if (step + 1) % SAVE_EVERY == 0 or last:
            print(f"step {step} held-out loss {held_out_loss(model, held_out):.4f}", flush=True)
            save_model(model, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    parser.add_argument("--held-out-file", type=Path, help="where to write the held-out book")
    parser.add_argument("--stage", type=int, choices=STAGES, help="only this one")
    parser.add_argument("--speed-up", type=int, default=1, help="divide the steps by this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1611)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    chapters, held_out_text = read_bible()
    if args.held_out_file:
        args.held_out_file.write_text(held_out_text, encoding="utf-8")

    tokenizer = train_tokenizer(chapters)
    save_tokenizer(tokenizer, args.out)
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    stream = torch.tensor([t for ids in tokenizer(chapters)["input_ids"] for t in [*ids, end]])
    held_out = torch.tensor(tokenizer(held_out_text)["input_ids"])

    Qwen3MoeSparseMoeBlock.forward = sorted_experts_forward
    if args.stage == 2:
        model = Qwen3MoeForCausalLM.from_pretrained(args.out, dtype=torch.float32)
    else:
        model = make_model(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {stream.numel()} tokens, "
          f"held out {held_out.numel()}", flush=True)
    for number in [args.stage] if args.stage else STAGES:
        stage = STAGES[number]
        stage.steps //= args.speed_up
        stage.cosine_steps //= args.speed_up
        torch.manual_seed(args.seed + number)
        train(model, stage, stream, held_out, args.out)


if __name__ == "__main__":
    main()
