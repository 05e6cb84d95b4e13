#!/usr/bin/env python3
"""Write small random MoE models and their logits, as transformers saves and computes them.

Every fixture of tools/model_fixtures.py becomes a directory in tests/data/models:

    config.json, *.safetensors, ...  written by save_pretrained of the fixture's transformers
    golden.safetensors               input_ids I64 [tokens], logits F32 [tokens, vocab]
    golden.json                      versions, smallest router gap, notes

Logits are computed in float32 with eager attention from the saved (rounded) weights, by loading the
directory again. Fixtures are in the forms of two transformers versions, so the script is run twice,
once in an environment of each; each run writes the fixtures of its own version:

    pip install torch==2.9.1 transformers==4.57.3 safetensors numpy tokenizers     # environment 1
    pip install torch==2.9.1 transformers==5.23.0 safetensors numpy tokenizers     # environment 2
    python tools/make_model_goldens.py                    # write, in each environment
    python tools/make_model_goldens.py --check            # load again and compare, in each

Weights and tokens are seeded by the fixture's name: a second run gives the same files.
"""

import argparse
import inspect
import json
import shutil
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedTokenizerFast

from model_fixtures import FIXTURES, QUANTIZED, V4, V5, Fixture

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "models"
CANDIDATES = 48  # tokens tried for each place of a golden sequence
WIDE_GAP = 0.02  # the distance of router probabilities that is looked for
TOKENIZER_SIZE = 284
SIGMOID_FAMILIES = ("glm4_moe", "dots1", "minimax_m2", "hy_v3", "deepseek_v3", "glm4_moe_lite")
NORMS_AROUND_ZERO = ("qwen3_next", "qwen3_5_moe_text")  # one is added to what they store
TOKENIZER_TEXT = "the quick brown fox jumps over the lazy dog; the experts share the tokens. " * 3


def seed_of(text: str) -> int:
    return zlib.crc32(text.encode())


def config_of(model: torch.nn.Module):
    """That of the text model, where another has it in itself."""
    return model.config.get_text_config()


def norm_mean(name: str, config) -> float:
    """Of the stored weights of a norm."""
    of_text = "visual." not in name and "linear_attn." not in name
    return 0.0 if of_text and config.model_type in NORMS_AROUND_ZERO else 1.0


# ---------------------------------------------------------------------------------------------
# Weights


def has_clamped_gating(config) -> bool:
    return config.model_type == "gpt_oss"


def weight_std(name: str, parameter: torch.nn.Parameter, config) -> float:
    """Standard deviation that keeps activations and logits near unit size and routers decided."""
    unit = parameter.shape[-1] ** -0.5  # keeps the size of a normed input
    branch = 1.0 / getattr(config, "residual_multiplier", 1.0)
    if "embed_tokens" in name:
        if hasattr(config, "embedding_multiplier"):
            return 1.0 / config.embedding_multiplier
        return unit if config.tie_word_embeddings else 1.0  # tied, it needs the size of lm_head
    if "lm_head" in name:
        return unit * getattr(config, "logits_scaling", 1.0)
    if name.endswith("bias"):
        return 0.3
    if name.endswith("sinks"):
        return 1.0
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")) and has_clamped_gating(config):
        unit = parameter.shape[-2] ** -0.5  # these lie across
        return (2.0 if "gate_up" in name else 0.4) * unit  # some of gate and up meet the limit
    if ".gate.weight" in name or ".router." in name:
        return 2.0 * unit
    if "down_proj" in name or ".w2." in name or "output_linear" in name:
        return 2.0 * unit * branch
    if "linear_attn.out_proj" in name:
        return 0.6 * unit  # what it gets is a product of six projections, each rounded
    return unit * branch if "o_proj" in name else unit


@torch.no_grad()
def fill(model: torch.nn.Module, name: str) -> None:
    generator = torch.Generator().manual_seed(seed_of(name))
    for parameter_name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in parameter_name:
            parameter.copy_(norm_mean(parameter_name, config_of(model)) + 0.2 * noise)
        elif parameter_name.endswith("A_log"):
            parameter.copy_(0.8 * noise - 1.5)  # some heads remember for long
        else:
            parameter.copy_(weight_std(parameter_name, parameter, config_of(model)) * noise)
    for buffer_name, buffer in model.named_buffers():
        if "correction_bias" in buffer_name:  # positive, and as far apart as scores are
            buffer.copy_(0.5 + 0.4 * torch.rand(buffer.shape, generator=generator))


def class_of(config) -> type:
    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


def save_model(fixture: Fixture, out: Path) -> None:
    config = AutoConfig.for_model(fixture.family, **fixture.config)
    model = class_of(config).from_config(config)
    fill(model, fixture.name)
    options = {"save_original_format": False} if fixture.fused else {}
    if fixture.shard:
        options["max_shard_size"] = fixture.shard
    model.to(getattr(torch, fixture.dtype)).save_pretrained(out, **options)
    if fixture.tokenizer:
        make_tokenizer().save_pretrained(out)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE with fewer tokens than the vocab_size of the models that carry it."""
    special = ["<pad>", "<s>", "</s>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([TOKENIZER_TEXT], trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token=special[0], bos_token=special[1],
                                   eos_token=special[2], clean_up_tokenization_spaces=False)


# ---------------------------------------------------------------------------------------------
# Goldens


def load(directory: Path, text_alone: bool = False) -> torch.nn.Module:
    """`text_alone`: the text model of one that reads images too, as what trains texts loads it."""
    its_class = AutoModelForCausalLM if text_alone else class_of(AutoConfig.from_pretrained(directory))
    options = {"experts_implementation": "eager"} if transformers.__version__ >= "5" else {}
    model, info = its_class.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        **options)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[problem]:
            raise ValueError(f"{directory}: {problem} {sorted(info[problem])}")
    return model.eval()


def gap_after(values: torch.Tensor, k: int) -> torch.Tensor:
    """Difference of the k-th and the next of the last dimension; infinite if there is no next."""
    ordered = values.sort(dim=-1, descending=True).values
    if ordered.shape[-1] == k:
        return torch.full(ordered.shape[:-1], torch.inf)
    return ordered[..., k - 1] - ordered[..., k]


def kept_values(config, values: torch.Tensor, score_groups) -> tuple[torch.Tensor, torch.Tensor]:
    """`values`, minus infinity outside the groups that are kept; and the gap after these."""
    groups = getattr(config, "n_group", None) or 1
    kept = getattr(config, "topk_group", None) or 1
    by_group = values.unflatten(-1, (groups, -1))
    scores = score_groups(by_group)
    stays = torch.zeros_like(scores).scatter(-1, scores.topk(kept, dim=-1).indices, 1).bool()
    return by_group.masked_fill(~stays[..., None], -torch.inf).flatten(-2), gap_after(scores, kept)


def sigmoid_values(config, logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What experts are chosen by, minus infinity outside the kept groups; and the gap after these."""
    return kept_values(config, torch.sigmoid(logits) + bias,
                       lambda groups: groups.topk(2, dim=-1).values.sum(dim=-1))


@torch.no_grad()
def values_of_routers(model: torch.nn.Module, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """kept_values of every layer [sequences, tokens, experts]. Not all versions return logits, so
    routers are found by their class."""
    found = []

    def record(router, inputs, _output):
        hidden, *given = inputs
        logits = torch.nn.functional.linear(hidden.float(), router.weight.float())
        logits = logits.view(*ids.shape, -1)
        if config_of(model).model_type == "deepseek_v2":
            found.append(kept_values(config_of(model), logits.softmax(dim=-1), lambda g: g.amax(dim=-1)))
            return
        bias = given[0] if given else router.e_score_correction_bias
        found.append(sigmoid_values(config_of(model), logits, bias))

    routers = [m for m in model.modules() if type(m).__name__.lower().endswith("topkrouter")]
    hooks = [router.register_forward_hook(record) for router in routers]
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return found


def choice_biases(model: torch.nn.Module) -> list[torch.Tensor]:
    """Of layers whose routers are softmaxes with a bias of the choice; nothing of other families."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return [bias.float() for name, bias in named if name.endswith("moe_statics.e_score_correction_bias")]


def experts_per_token(config) -> int:
    return config.moe_k if hasattr(config, "moe_k") else config.num_experts_per_tok


def router_logits(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """Of each MoE layer, [tokens, experts]."""
    if model.config.model_type != "gpt_oss":
        return model(ids, output_router_logits=True, use_cache=False).router_logits
    logits = []  # 4.57.3 would give the weights of the chosen experts

    def keep(router, args, _):
        logits.append(torch.nn.functional.linear(args[0], router.weight, router.bias))

    hooks = [module.register_forward_hook(keep) for module in model.modules()
             if type(module).__name__ == "GptOssTopKRouter"]
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return logits


@torch.no_grad()
def router_gaps(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Difference of what decides between the k-th and the next expert, the least over the layers.

    [sequences, tokens] of the tokens `ids`.
    """
    k = experts_per_token(config_of(model))
    if config_of(model).model_type in (*SIGMOID_FAMILIES, "deepseek_v2"):
        gaps = [torch.minimum(gap_after(values, k), of_groups)
                for values, of_groups in values_of_routers(model, ids)]
        return torch.stack(gaps).amin(dim=0)
    biases = choice_biases(model)
    gaps = []
    for layer, logits in enumerate(router_logits(model, ids)):
        values = torch.softmax(logits.float(), dim=-1).view(*ids.shape, -1)
        gaps.append(gap_after(values + biases[layer] if biases else values, k))
    return torch.stack(gaps).amin(dim=0)


def choose_tokens(model: torch.nn.Module, fixture: Fixture) -> torch.Tensor:
    """Random tokens without near-ties in the routers, chosen from left to right.

    A near-tie would let two correct computations choose different experts. A gap depends on the
    tokens before it only, so each place takes the first candidate that leaves it wide enough. All
    calls have the full length, because some kinds of rope depend on it.
    """
    generator = torch.Generator().manual_seed(seed_of(fixture.name + " tokens"))
    known = TOKENIZER_SIZE if fixture.tokenizer else config_of(model).vocab_size
    ids = torch.randint(3, known, (fixture.tokens,), generator=generator)
    for place in range(fixture.tokens):
        tried = ids.repeat(CANDIDATES, 1)
        tried[:, place] = torch.randint(3, known, (CANDIDATES,), generator=generator)
        gaps = router_gaps(model, tried)[:, place]
        wide = (gaps >= WIDE_GAP).nonzero()
        ids = tried[wide[0].item() if len(wide) else gaps.argmax().item()]
    return ids


@torch.no_grad()
def logits_at_once(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model(ids[None], use_cache=False).logits[0].float().contiguous()


@torch.no_grad()
def logits_stepwise(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Feeds one token a call with a cache, as generation does."""
    cache, rows = None, []
    for token in ids:
        output = model(token.view(1, 1), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        rows.append(output.logits[0, -1].float())
    return torch.stack(rows)


def write_golden(fixture: Fixture, out: Path) -> dict:
    model = load(out)
    ids = choose_tokens(model, fixture)
    gap = router_gaps(model, ids[None]).min().item()
    model = load(out)  # dynamic rope keeps the longest length seen: start afresh for each golden
    logits = logits_at_once(model, ids)
    stepwise = logits_stepwise(load(out), ids)
    difference = (stepwise - logits).abs().max().item()
    tensors = {"input_ids": ids, "logits": logits}
    if fixture.stepwise:
        tensors["logits_stepwise"] = stepwise
    save_file(tensors, out / "golden.safetensors")
    golden = {
        "transformers_version": transformers.__version__,
        "torch_version": torch.__version__.split("+")[0],
        "compute": "float32, eager attention",
        "min_router_gap": float(f"{gap:.3g}"),
        "logits_std": float(f"{logits.std().item():.3g}"),
        "stepwise_max_abs_difference": float(f"{difference:.2g}"),
        "notes": [f"Covers: {fixture.covers}.", *fixture.notes],
    }
    (out / "golden.json").write_text(json.dumps(golden, indent=2) + "\n", encoding="utf-8")
    return golden


def check_golden(fixture: Fixture, out: Path) -> float:
    golden = load_file(out / "golden.safetensors")
    return (logits_at_once(load(out), golden["input_ids"]) - golden["logits"]).abs().max().item()


# ---------------------------------------------------------------------------------------------


def write_readme(out: Path) -> None:
    rows = [f"| `{f.name}` | {f.transformers} | {f.covers} |" for f in FIXTURES + QUANTIZED]
    text = inspect.cleandoc("""
        # Small random models

        One directory a model, written by `tools/make_model_goldens.py` (table:
        `tools/model_fixtures.py`) with the `save_pretrained` of the transformers version that is
        named; `fused` is `save_original_format=False`. `golden.safetensors` holds `input_ids` I64
        [tokens] and `logits` F32 [tokens, vocab], computed by that version in float32 with eager
        attention from the saved weights in one call over the whole sequence. Where feeding one
        token a call with a cache gives other numbers (dynamic and longrope), those are there too,
        as `logits_stepwise`. `golden.json` gives the smallest distance between the k-th and the
        next router probability (at least 0.02 everywhere, so that rounding does not change the
        chosen experts) and notes on what transformers computes.

        Quantised models (the last ones) are written by `tools/make_quantized_models.py`: each
        library stores its own tensors, and the logits are those of a plain model that holds the
        library's dequantised weights.

        | Directory | transformers | Covers |
        |---|---|---|
        """)
    (out / "README.md").write_text(text + "\n" + "\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--only", default="", help="part of the name of the fixtures to make")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    if transformers.__version__ not in (V4, V5):
        parser.error(f"needs transformers {V4} or {V5}, found {transformers.__version__}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)

    for fixture in FIXTURES:
        if fixture.transformers != transformers.__version__ or args.only not in fixture.name:
            continue
        directory = args.out / fixture.name
        if args.check:
            print(f"{fixture.name}: largest difference {check_golden(fixture, directory):.2g}")
            continue
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        save_model(fixture, directory)
        golden = write_golden(fixture, directory)
        for path in directory.iterdir():
            path.chmod(0o644)
        print(f"{fixture.name}: router gap {golden['min_router_gap']}, logits std "
              f"{golden['logits_std']}, stepwise {golden['stepwise_max_abs_difference']}")
    if not args.check:
        write_readme(args.out)


if __name__ == "__main__":
    main()
