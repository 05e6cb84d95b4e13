"""The table of small random models that stand in tests/data/models.

FIXTURES are written by tools/make_model_goldens.py, QUANTIZED by tools/make_quantized_models.py.

Sizes are odd on purpose: head counts, head widths and expert widths that are not powers of two,
and hidden widths that no vector or tile width divides, so that every tail of a kernel is used.
"""

from dataclasses import dataclass

V4 = "4.57.3"
V5 = "5.23.0"


@dataclass(frozen=True)
class Fixture:
    """One model directory: `config` is what the family's configuration class is made from."""

    name: str
    transformers: str  # the version that writes it
    family: str  # model_type
    dtype: str  # of the saved tensors
    tokens: int  # length of the golden sequence
    covers: str
    config: dict
    fused: bool = False  # transformers 5 with save_original_format=False
    shard: str | None = None  # max_shard_size
    tokenizer: bool = False
    stepwise: bool = False  # also keep the logits of one token a call, where these differ
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuantizedFixture:
    """One directory of a quantised model. `form` is the way its linear layers are stored."""

    name: str
    family: str  # model_type
    form: str
    attention: bool  # quantised too; routers, embedding and head never are
    covers: str
    config: dict
    transformers: str = V5
    tokens: int = 24
    tokenizer: bool = False


IDS = {"bos_token_id": 1, "eos_token_id": 2}

NOTE_DYNAMIC = (
    "Dynamic NTK depends on the length of the call: transformers takes n = max(position_ids) + 1 "
    "and, once n exceeds max_position_embeddings, base = rope_theta * (factor * n / "
    "max_position_embeddings - (factor - 1)) ** (d / (d - 2)) for every position of that call. "
    "`logits` is one call over the whole sequence, so all its positions use the base of its full "
    "length.",
    "`logits_stepwise` feeds one token a call with a cache: a key keeps the rotation of the call "
    "that computed it, only the new token gets the base of the present length.",
)
NOTE_LONGROPE = (
    "transformers picks long_factor for all positions of a call when max(position_ids) + 1 exceeds "
    "original_max_position_embeddings, short_factor otherwise; cos and sin are multiplied by the "
    "attention factor in both cases.",
    "The attention factor is sqrt(1 + ln(factor) / ln(original_max_position_embeddings)). 4.57.3 "
    "takes factor = max_position_embeddings / original_max_position_embeddings when the latter is "
    "a top-level key (a factor in rope_scaling is then ignored); 5.23.0 takes factor of "
    "rope_parameters, and that ratio only where it has none.",
)
NOTE_LONGROPE_STEPS = (
    "`logits_stepwise` feeds one token a call with a cache: keys computed before the switch keep "
    "short_factor.",
)
NOTE_QWEN2_WINDOW_V4 = (
    "4.57.3 with eager or sdpa attention applies sliding_window to every layer of qwen2_moe once "
    "use_sliding_window is true (only its flash attention path looks at max_window_layers, and "
    "then windows the layers from that index on). `logits` is eager.",
    "One token a call with 4.57.3's cache gives wrong numbers once the window is full (its mask "
    "does not follow its sliding cache); 5.23.0 with every layer in layer_types set to "
    "sliding_attention reproduces `logits` both ways.",
    "5.x reads the same directory differently: without layer_types it windows the layers with an "
    "even index below max_window_layers, so its logits differ from this golden.",
)
NOTE_QWEN2_WINDOW_V5 = (
    "layer_types in config.json says which layers are windowed; 5.x derives it from "
    "max_window_layers (even indices below it).",
)
NOTE_GROUPS_V4 = (
    "4.57.3 puts 0, not minus infinity, in the place of what experts outside the kept groups are "
    "chosen by. The bias of this model is positive, so that no such expert is chosen.",
)


def longrope_factors(pairs: int, growth: float) -> list[float]:
    return [round(1.0 + growth * i * i / (pairs * pairs), 4) for i in range(pairs)]


FIXTURES = [
    # ------------------------------------------------------------------------------ qwen3_moe
    Fixture(
        "qwen3_moe-v4", V4, "qwen3_moe", "bfloat16", 32,
        "q/k norm per head, heads * head_dim != hidden, norm_topk_prob, untied, bf16, one file",
        dict(vocab_size=150, hidden_size=64, intermediate_size=80, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, head_dim=20, num_experts=8,
             num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
             tie_word_embeddings=False, rope_theta=1000000.0, max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "qwen3_moe-v4-sparse-step", V4, "qwen3_moe", "float32", 24,
        "decoder_sparse_step 2 and mlp_only_layers (only layer 1 of 4 is MoE), attention_bias, "
        "tied, norm_topk_prob false, fp32",
        dict(vocab_size=120, hidden_size=52, intermediate_size=70, num_hidden_layers=4,
             num_attention_heads=5, num_key_value_heads=5, head_dim=8, num_experts=5,
             num_experts_per_tok=2, moe_intermediate_size=18, norm_topk_prob=False,
             decoder_sparse_step=2, mlp_only_layers=[3], attention_bias=True,
             tie_word_embeddings=True, rope_theta=10000.0, max_position_embeddings=64, **IDS),
    ),
    Fixture(
        "qwen3_moe-v4-yarn-window-sharded", V4, "qwen3_moe", "bfloat16", 48,
        "yarn (defaults), sliding window on every layer, shards with an index, bf16",
        dict(vocab_size=140, hidden_size=48, intermediate_size=60, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=3, head_dim=16, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=40, norm_topk_prob=True,
             use_sliding_window=True, sliding_window=13, rope_theta=10000.0,
             rope_scaling={"rope_type": "yarn", "factor": 4.0,
                           "original_max_position_embeddings": 16},
             max_position_embeddings=64, **IDS),
        shard="60KB",
    ),
    Fixture(
        "qwen3_moe-v5", V5, "qwen3_moe", "float16", 40,
        "5.x config (rope_parameters, num_local_experts), llama3 rope, attention_bias, tied, fp16",
        dict(vocab_size=130, hidden_size=56, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=1, head_dim=24, num_experts=7,
             num_experts_per_tok=4, moe_intermediate_size=20, norm_topk_prob=True,
             attention_bias=True, tie_word_embeddings=True,
             rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                              "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 32},
             max_position_embeddings=256, **IDS),
    ),
    Fixture(
        "qwen3_moe-v5-fused", V5, "qwen3_moe", "bfloat16", 24,
        "fused expert tensors, a dense layer (mlp_only_layers), longrope below the original length "
        "(short_factor, attention factor from factor)",
        dict(vocab_size=110, hidden_size=64, intermediate_size=72, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=12, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=28, norm_topk_prob=True,
             mlp_only_layers=[0], tie_word_embeddings=False,
             rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
                              "short_factor": longrope_factors(6, 0.5),
                              "long_factor": longrope_factors(6, 6.0),
                              "original_max_position_embeddings": 32},
             max_position_embeddings=128, **IDS),
        fused=True, notes=NOTE_LONGROPE,
    ),
    # ------------------------------------------------------------------------------ qwen2_moe
    Fixture(
        "qwen2_moe-v4", V4, "qwen2_moe", "bfloat16", 32,
        "qkv bias, gated shared expert, norm_topk_prob false, a dense layer (mlp_only_layers), "
        "linear rope, vocab_size larger than the tokenizer, with a tokenizer, bf16",
        dict(vocab_size=304, hidden_size=60, intermediate_size=76, num_hidden_layers=3,
             num_attention_heads=5, num_key_value_heads=1, num_experts=8, num_experts_per_tok=3,
             moe_intermediate_size=20, shared_expert_intermediate_size=44, norm_topk_prob=False,
             mlp_only_layers=[1], tie_word_embeddings=False, rope_theta=10000.0,
             rope_scaling={"rope_type": "linear", "factor": 2.5},
             max_position_embeddings=128, **IDS),
        tokenizer=True,
    ),
    Fixture(
        "qwen2_moe-v4-window", V4, "qwen2_moe", "float32", 36,
        "use_sliding_window with max_window_layers, qkv_bias false, norm_topk_prob, "
        "decoder_sparse_step 2, tied, fp32",
        dict(vocab_size=100, hidden_size=48, intermediate_size=50, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
             moe_intermediate_size=22, shared_expert_intermediate_size=30, norm_topk_prob=True,
             qkv_bias=False, decoder_sparse_step=2, use_sliding_window=True, sliding_window=9,
             max_window_layers=1, tie_word_embeddings=True, rope_theta=10000.0,
             max_position_embeddings=64, **IDS),
        notes=NOTE_QWEN2_WINDOW_V4,
    ),
    Fixture(
        "qwen2_moe-v5-window", V5, "qwen2_moe", "bfloat16", 36,
        "5.x config, layer_types with full and sliding layers, head_dim != hidden / heads, "
        "qkv bias, shared expert, shards with an index, bf16",
        dict(vocab_size=120, hidden_size=56, intermediate_size=60, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=18, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=26, shared_expert_intermediate_size=38,
             norm_topk_prob=False, use_sliding_window=True, sliding_window=7,
             max_window_layers=2, tie_word_embeddings=False,
             rope_parameters={"rope_type": "default", "rope_theta": 25000.0},
             max_position_embeddings=64, **IDS),
        shard="70KB", notes=NOTE_QWEN2_WINDOW_V5,
    ),
    Fixture(
        "qwen2_moe-v5-fused", V5, "qwen2_moe", "float16", 48,
        "fused expert tensors with a shared expert, sliding_window 0 (off), dynamic rope beyond "
        "max_position_embeddings, fp16",
        dict(vocab_size=100, hidden_size=64, intermediate_size=60, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=4, num_experts=6, num_experts_per_tok=3,
             moe_intermediate_size=24, shared_expert_intermediate_size=36, norm_topk_prob=True,
             tie_word_embeddings=False,
             rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
             max_position_embeddings=32, **IDS),
        fused=True, stepwise=True, notes=NOTE_DYNAMIC,
    ),
    # ---------------------------------------------------------------------------------- olmoe
    Fixture(
        "olmoe-v4", V4, "olmoe", "bfloat16", 32,
        "q/k norm over the whole projection, clip_qkv, norm_topk_prob false, untied, bf16",
        dict(vocab_size=150, hidden_size=72, intermediate_size=28, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=6, num_experts=8, num_experts_per_tok=4,
             norm_topk_prob=False, clip_qkv=1.25, tie_word_embeddings=False, rope_theta=10000.0,
             max_position_embeddings=128, pad_token_id=0, **IDS),
    ),
    Fixture(
        "olmoe-v4-bias", V4, "olmoe", "float16", 40,
        "attention_bias (q, k, v and o), grouped heads, norm_topk_prob, llama3 rope, tied, fp16",
        dict(vocab_size=110, hidden_size=64, intermediate_size=36, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, num_experts=5, num_experts_per_tok=2,
             norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True, rope_theta=10000.0,
             rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
             max_position_embeddings=128, pad_token_id=0, **IDS),
    ),
    Fixture(
        "olmoe-v5", V5, "olmoe", "float32", 32,
        "5.x config, yarn with truncate false, beta_fast, beta_slow, mscale and mscale_all_dim, "
        "clip_qkv, vocab_size larger than the tokenizer, with a tokenizer as 5.x writes it, fp32",
        dict(vocab_size=296, hidden_size=60, intermediate_size=22, num_hidden_layers=2,
             num_attention_heads=5, num_key_value_heads=5, num_experts=6, num_experts_per_tok=2,
             norm_topk_prob=False, clip_qkv=2.0, tie_word_embeddings=False,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                              "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
                              "mscale": 1.0, "mscale_all_dim": 0.4,
                              "original_max_position_embeddings": 256},
             max_position_embeddings=2048, pad_token_id=0, **IDS),
        tokenizer=True,
    ),
    # -------------------------------------------------------------------------------- mixtral
    Fixture(
        "mixtral-v4-window-sharded", V4, "mixtral", "bfloat16", 40,
        "block_sparse_moe names, sliding window, head_dim != hidden / heads, shards with an index, "
        "bf16",
        dict(vocab_size=130, hidden_size=64, intermediate_size=44, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=20, num_local_experts=6,
             num_experts_per_tok=2, sliding_window=11, tie_word_embeddings=False,
             rope_theta=1000000.0, max_position_embeddings=128, **IDS),
        shard="50KB",
    ),
    Fixture(
        "mixtral-v4-dynamic", V4, "mixtral", "float32", 56,
        "dynamic rope beyond max_position_embeddings, top-1 routing, tied, fp32",
        dict(vocab_size=100, hidden_size=48, intermediate_size=26, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_local_experts=4,
             num_experts_per_tok=1, tie_word_embeddings=True, rope_theta=10000.0,
             rope_scaling={"rope_type": "dynamic", "factor": 4.0},
             max_position_embeddings=24, **IDS),
        stepwise=True, notes=NOTE_DYNAMIC,
    ),
    Fixture(
        "mixtral-v5", V5, "mixtral", "float16", 32,
        "5.x config with block_sparse_moe names, linear rope, head_dim null, fp16",
        dict(vocab_size=110, hidden_size=60, intermediate_size=30, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=2, num_local_experts=5,
             num_experts_per_tok=2, tie_word_embeddings=False,
             rope_parameters={"rope_type": "linear", "rope_theta": 1000000.0, "factor": 3.0},
             max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "mixtral-v5-fused", V5, "mixtral", "bfloat16", 32,
        "fused expert tensors under mlp.*, sliding window, bf16",
        dict(vocab_size=120, hidden_size=64, intermediate_size=34, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=1, head_dim=16, num_local_experts=8,
             num_experts_per_tok=3, sliding_window=10, tie_word_embeddings=False,
             rope_parameters={"rope_type": "default", "rope_theta": 50000.0},
             max_position_embeddings=128, **IDS),
        fused=True,
    ),
    # ----------------------------------------------------------------------------- granitemoe
    Fixture(
        "granitemoe-v4", V4, "granitemoe", "bfloat16", 32,
        "embedding, attention and residual multipliers, logits_scaling, input_linear and "
        "output_linear, tied, bf16",
        dict(vocab_size=150, hidden_size=64, intermediate_size=28, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, num_local_experts=8,
             num_experts_per_tok=3, embedding_multiplier=3.5, attention_multiplier=0.1875,
             residual_multiplier=0.22, logits_scaling=2.5, tie_word_embeddings=True,
             rope_theta=10000.0, max_position_embeddings=128, pad_token_id=0, **IDS),
    ),
    Fixture(
        "granitemoe-v4-longrope", V4, "granitemoe", "float16", 60,
        "longrope beyond original_max_position_embeddings (long_factor, attention factor from the "
        "ratio of lengths), attention_bias (q, k, v and o), untied, fp16",
        dict(vocab_size=100, hidden_size=72, intermediate_size=26, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=3, num_local_experts=6,
             num_experts_per_tok=2, embedding_multiplier=4.0, attention_multiplier=0.25,
             residual_multiplier=0.5, logits_scaling=3.0, attention_bias=True,
             tie_word_embeddings=False, rope_theta=10000.0,
             rope_scaling={"rope_type": "longrope", "short_factor": longrope_factors(6, 0.4),
                           "long_factor": longrope_factors(6, 5.0)},
             original_max_position_embeddings=40, max_position_embeddings=160, pad_token_id=0,
             **IDS),
        stepwise=True, notes=NOTE_LONGROPE + NOTE_LONGROPE_STEPS,
    ),
    Fixture(
        "granitemoe-v5", V5, "granitemoe", "float32", 40,
        "5.x config, yarn with an explicit attention_factor, multipliers, attention_bias, fp32",
        dict(vocab_size=100, hidden_size=52, intermediate_size=20, num_hidden_layers=2,
             num_attention_heads=2, num_key_value_heads=1, num_local_experts=5,
             num_experts_per_tok=2, embedding_multiplier=8.0, attention_multiplier=0.125,
             residual_multiplier=0.3, logits_scaling=4.0, attention_bias=True,
             tie_word_embeddings=False,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                              "attention_factor": 1.1, "original_max_position_embeddings": 32},
             max_position_embeddings=128, pad_token_id=0, **IDS),
    ),
    Fixture(
        "granitemoe-v5-fused", V5, "granitemoe", "bfloat16", 48,
        "fused expert tensors under block_sparse_moe.experts with block_sparse_moe.router.weight, "
        "longrope beyond the original length in 5.x form, multipliers, tied, bf16",
        dict(vocab_size=110, hidden_size=64, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=4, num_local_experts=6,
             num_experts_per_tok=2, embedding_multiplier=5.0, attention_multiplier=0.2,
             residual_multiplier=0.4, logits_scaling=1.5, tie_word_embeddings=True,
             rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0,
                              "short_factor": longrope_factors(8, 0.3),
                              "long_factor": longrope_factors(8, 4.0),
                              "original_max_position_embeddings": 32},
             max_position_embeddings=128, pad_token_id=0, **IDS),
        fused=True, stepwise=True, notes=NOTE_LONGROPE + NOTE_LONGROPE_STEPS,
    ),
    # ------------------------------------------------------------------------------ glm4_moe
    Fixture(
        "glm4_moe-v4", V4, "glm4_moe", "bfloat16", 32,
        "half of a head rotated, q/k norm per head, qkv bias without one of o, sigmoid router with "
        "a bias, groups and a scaling factor, an ungated shared expert, a first dense layer, bf16",
        dict(vocab_size=130, hidden_size=56, intermediate_size=52, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, head_dim=20, n_routed_experts=12,
             num_experts_per_tok=3, moe_intermediate_size=18, n_shared_experts=1, n_group=3,
             topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1,
             norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
             tie_word_embeddings=False, rope_theta=1000000.0, max_position_embeddings=128, **IDS),
        notes=NOTE_GROUPS_V4,
    ),
    Fixture(
        "glm4_moe-v5-fused", V5, "glm4_moe", "float16", 32,
        "5.x config, fused expert tensors, no q/k norm, three quarters of a head rotated, two "
        "shared experts, norm_topk_prob false, tied, fp16",
        dict(vocab_size=120, hidden_size=48, intermediate_size=40, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=1, head_dim=16, n_routed_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2,
             routed_scaling_factor=0.75, first_k_dense_replace=2, norm_topk_prob=False,
             tie_word_embeddings=True, max_position_embeddings=128,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 0.75}, **IDS),
        fused=True,
    ),
    # --------------------------------------------------------------------------------- dots1
    Fixture(
        "dots1-v4-window", V4, "dots1", "bfloat16", 36,
        "layer_types with windows from max_window_layers on, attention_bias (q, k, v and o), "
        "q/k norm per head, sigmoid router with a bias, shards with an index, bf16",
        dict(vocab_size=110, hidden_size=44, intermediate_size=36, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=4, head_dim=12, n_routed_experts=7,
             num_experts_per_tok=2, moe_intermediate_size=22, n_shared_experts=2,
             routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True,
             attention_bias=True, sliding_window=9, max_window_layers=2,
             tie_word_embeddings=False, rope_theta=10000.0, max_position_embeddings=64, **IDS),
        shard="50KB",
    ),
    # ---------------------------------------------------------------------------- minimax_m2
    Fixture(
        "minimax_m2-v5", V5, "minimax_m2", "bfloat16", 32,
        "block_sparse_moe names, q/k norm over the whole projection, rotary_dim, sigmoid router "
        "with a bias, no dense layer, bf16",
        dict(vocab_size=120, hidden_size=52, intermediate_size=22, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=2, head_dim=12, rotary_dim=8,
             num_local_experts=9, num_experts_per_tok=3, tie_word_embeddings=False,
             max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "minimax_m2-v5-fused", V5, "minimax_m2", "float32", 28,
        "fused expert tensors under mlp.*, whole heads rotated, tied, fp32",
        dict(vocab_size=100, hidden_size=40, intermediate_size=18, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=4, head_dim=8, num_local_experts=5,
             num_experts_per_tok=2, tie_word_embeddings=True, max_position_embeddings=128, **IDS),
        fused=True,
    ),
    # ---------------------------------------------------------------------------------- hy_v3
    Fixture(
        "hy_v3-v5", V5, "hy_v3", "bfloat16", 32,
        "router, expert_bias and shared_mlp by the names of the release, mlp_layer_types, "
        "router_scaling_factor, q/k norm per head, bf16",
        dict(vocab_size=120, hidden_size=48, intermediate_size=44, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=3, head_dim=10, num_experts=8,
             num_experts_per_tok=3, moe_intermediate_size=20, num_shared_experts=1,
             router_scaling_factor=2.826, mlp_layer_types=["sparse", "dense", "sparse"],
             tie_word_embeddings=False, max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "hy_v3-v5-fused", V5, "hy_v3", "float16", 28,
        "fused expert tensors, mlp.gate and shared_experts, attention_bias (q, k, v and o), fp16",
        dict(vocab_size=100, hidden_size=44, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=12, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=18, num_shared_experts=2,
             attention_bias=True, tie_word_embeddings=True, max_position_embeddings=128, **IDS),
        fused=True,
    ),
    # --------------------------------------------------------------------------- ernie4_5_moe
    Fixture(
        "ernie4_5_moe-v4", V4, "ernie4_5_moe", "bfloat16", 32,
        "rotation of pairs, softmax router with a bias of the choice, shared experts of twice the "
        "width, layers with experts by start and interval, untied, bf16",
        dict(vocab_size=130, hidden_size=48, intermediate_size=44, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, moe_num_experts=7, moe_k=3,
             moe_intermediate_size=18, moe_num_shared_experts=2, moe_layer_start_index=1,
             moe_layer_interval=2, tie_word_embeddings=False, max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "ernie4_5_moe-v5-fused", V5, "ernie4_5_moe", "float16", 28,
        "5.x config, fused expert tensors, no shared expert, layers with experts up to an end, "
        "untied, fp16",
        dict(vocab_size=100, hidden_size=40, intermediate_size=36, num_hidden_layers=3,
             num_attention_heads=5, num_key_value_heads=1, moe_num_experts=6, moe_k=2,
             moe_intermediate_size=20, moe_num_shared_experts=0, moe_layer_start_index=0,
             moe_layer_end_index=1, tie_word_embeddings=False, max_position_embeddings=128, **IDS),
        fused=True,
    ),
    # ---------------------------------------------------------------------- latent attention
    Fixture(
        "deepseek_v3-v4", V4, "deepseek_v3", "bfloat16", 40,
        "latent attention with q_lora_rank, pairs of neighbours rotated, yarn with mscale and "
        "mscale_all_dim, sigmoid router with a bias, groups, a first dense layer, bf16",
        dict(vocab_size=110, hidden_size=52, intermediate_size=44, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=6, q_lora_rank=28, kv_lora_rank=36,
             qk_nope_head_dim=16, qk_rope_head_dim=12, v_head_dim=32, n_routed_experts=9,
             num_experts_per_tok=3, moe_intermediate_size=18, n_shared_experts=1, n_group=3,
             topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
             norm_topk_prob=True, tie_word_embeddings=False, rope_theta=10000.0,
             rope_scaling={"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                           "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1,
                           "original_max_position_embeddings": 32},
             max_position_embeddings=128, **IDS),
        notes=NOTE_GROUPS_V4,
    ),
    Fixture(
        "deepseek_v3-v5-fused", V5, "deepseek_v3", "float16", 32,
        "5.x config, fused expert tensors, q_lora_rank null, attention_bias (q_a, kv_a and o), "
        "rope_interleave false, two shared experts, norm_topk_prob false, tied, fp16",
        dict(vocab_size=110, hidden_size=48, intermediate_size=40, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20,
             qk_nope_head_dim=32, qk_rope_head_dim=6, v_head_dim=16, n_routed_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2, n_group=1,
             topk_group=1, routed_scaling_factor=0.75, first_k_dense_replace=2,
             norm_topk_prob=False, attention_bias=True, rope_interleave=False,
             tie_word_embeddings=True, max_position_embeddings=128,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **IDS),
        fused=True,
    ),
    Fixture(
        "deepseek_v2-v5", V5, "deepseek_v2", "bfloat16", 36,
        "latent attention with attention_bias and q_lora_rank, yarn with equal mscales, a softmax "
        "over all experts of which groups are kept by their largest, never normalised, bf16",
        dict(vocab_size=120, hidden_size=52, intermediate_size=44, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=4, q_lora_rank=26, kv_lora_rank=24,
             qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8,
             num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2, n_group=4,
             topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
             first_k_dense_replace=1, attention_bias=True, tie_word_embeddings=False,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                              "mscale": 0.707, "mscale_all_dim": 0.707,
                              "original_max_position_embeddings": 16},
             max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "glm4_moe_lite-v5", V5, "glm4_moe_lite", "bfloat16", 32,
        "latent attention with values wider than keys, mlp_layer_types, rms_norm_eps unlike that "
        "of the inner norms, shards with an index, bf16",
        dict(vocab_size=90, hidden_size=44, intermediate_size=44, num_hidden_layers=3,
             num_attention_heads=5, num_key_value_heads=5, q_lora_rank=22, kv_lora_rank=30,
             qk_nope_head_dim=32, qk_rope_head_dim=10, v_head_dim=48, n_routed_experts=7,
             num_experts_per_tok=2, moe_intermediate_size=22, n_shared_experts=1,
             routed_scaling_factor=1.8, rms_norm_eps=1e-2, norm_topk_prob=True,
             mlp_layer_types=["dense", "sparse", "sparse"], tie_word_embeddings=False,
             max_position_embeddings=128, **IDS),
        shard="50KB",
    ),
    # -------------------------------------------------------------------------------- gpt_oss
    Fixture(
        "gpt_oss-v4", V4, "gpt_oss", "bfloat16", 36,
        "transposed experts whose gate and up take turns, biases, sinks, alternating windows, yarn "
        "with truncate false, clamped gating, bf16",
        dict(vocab_size=140, hidden_size=60, intermediate_size=22, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, head_dim=12, num_local_experts=6,
             num_experts_per_tok=3, sliding_window=9, tie_word_embeddings=False,
             rope_theta=150000.0,
             rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0,
                           "beta_slow": 1.0, "truncate": False,
                           "original_max_position_embeddings": 32},
             max_position_embeddings=256, pad_token_id=0, **IDS),
    ),
    Fixture(
        "gpt_oss-v5", V5, "gpt_oss", "float16", 32,
        "5.x config (swiglu_limit, swiglu_alpha, layer_types that do not alternate, attention_bias "
        "false, rope by default), one query head a KV head, shards with an index, fp16",
        dict(vocab_size=110, hidden_size=54, intermediate_size=26, num_hidden_layers=3,
             num_attention_heads=3, num_key_value_heads=3, head_dim=16, num_local_experts=5,
             num_experts_per_tok=2, sliding_window=7, tie_word_embeddings=False,
             layer_types=["full_attention", "sliding_attention", "sliding_attention"],
             attention_bias=False, swiglu_limit=2.5, swiglu_alpha=1.3, pad_token_id=0, **IDS),
        shard="60KB",
    ),
    # ---------------------------------------------------------------------- gated delta nets
    Fixture(
        "qwen3_next-v4", V4, "qwen3_next", "bfloat16", 70,
        "gated delta net (in_proj_qkvz, in_proj_ba) and one layer of gated attention by the "
        "interval, value heads that share keys, norms of 1 + w, part of a head rotated, gated "
        "shared expert, a dense layer, more tokens than transformers takes at once, bf16",
        dict(vocab_size=110, hidden_size=44, intermediate_size=36, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_num_key_heads=2,
             linear_num_value_heads=4, linear_key_head_dim=10, linear_value_head_dim=22,
             linear_conv_kernel_dim=4, num_experts=7, num_experts_per_tok=2,
             moe_intermediate_size=18, shared_expert_intermediate_size=26, norm_topk_prob=True,
             mlp_only_layers=[1], tie_word_embeddings=False, rope_theta=10000000.0,
             max_position_embeddings=128, **IDS),
    ),
    Fixture(
        "qwen3_next-v5-fused", V5, "qwen3_next", "float32", 30,
        "5.x config, fused expert tensors, layer_types, attention_bias, two taps of the "
        "convolution, a value head a key head, norm_topk_prob false, tied, fp32",
        dict(vocab_size=100, hidden_size=40, intermediate_size=36, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=1, head_dim=24, linear_num_key_heads=3,
             linear_num_value_heads=3, linear_key_head_dim=9, linear_value_head_dim=18,
             linear_conv_kernel_dim=2, num_experts=6, num_experts_per_tok=2,
             moe_intermediate_size=20, shared_expert_intermediate_size=14, norm_topk_prob=False,
             attention_bias=True, tie_word_embeddings=True, max_position_embeddings=128,
             layer_types=["full_attention", "linear_attention"],
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 0.5}, **IDS),
        fused=True,
    ),
    Fixture(
        "qwen3_5_moe-v5", V5, "qwen3_5_moe", "bfloat16", 36,
        "text_config and tensors of model.language_model beside what reads images, four "
        "projections of a gated delta net, keys wider than a vector, shards with an index, bf16",
        dict(text_config=dict(
                 vocab_size=110, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, linear_num_key_heads=1,
                 linear_num_value_heads=3, linear_key_head_dim=18, linear_value_head_dim=36,
                 num_experts=7, num_experts_per_tok=3, moe_intermediate_size=18,
                 shared_expert_intermediate_size=22, tie_word_embeddings=False,
                 max_position_embeddings=128,
                 layer_types=["linear_attention", "full_attention", "linear_attention"],
                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                  "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0],
                                  "mrope_interleaved": True}, **IDS),
             vision_config=dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=8,
                                num_position_embeddings=4, out_hidden_size=48, patch_size=2,
                                temporal_patch_size=1, spatial_merge_size=1),
             image_token_id=107, video_token_id=108, vision_start_token_id=105,
             vision_end_token_id=106, tie_word_embeddings=False),
        shard="60KB",
    ),
]

MIXTRAL = dict(vocab_size=48, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=4,
               num_experts_per_tok=2, tie_word_embeddings=False, max_position_embeddings=128,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **IDS)
QWEN3 = dict(vocab_size=48, hidden_size=64, intermediate_size=64, moe_intermediate_size=32,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, tie_word_embeddings=False,
             max_position_embeddings=128,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **IDS)

GPT_OSS = dict(vocab_size=48, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=4,
               num_experts_per_tok=2, sliding_window=8, tie_word_embeddings=False,
               pad_token_id=0, **IDS)

SMALL_ATTENTION = dict(num_attention_heads=2, num_key_value_heads=1)

QUANTIZED = [
    QuantizedFixture(
        "qwen3_moe-fp8-block", "qwen3_moe", "fp8-block", True,
        "FP8 with scales of blocks of 128 x 128 (weight_scale_inv), the last ones partial",
        QWEN3 | dict(num_attention_heads=5, num_key_value_heads=1, head_dim=32)),
    QuantizedFixture(
        "mixtral-int4-group32", "mixtral", "pack-quantized", False,
        "compressed-tensors pack-quantized INT4, groups of 32, experts only",
        MIXTRAL | SMALL_ATTENTION),
    QuantizedFixture(
        "qwen3_moe-nvfp4", "qwen3_moe", "nvfp4-pack-quantized", True,
        "compressed-tensors NVFP4, a divisor of its own for every matrix, also q, k and v", QWEN3),
    QuantizedFixture(
        "mixtral-gptq-order", "mixtral", "gptq", True,
        "GPTQ with zero points and activation order", MIXTRAL),
    QuantizedFixture(
        "qwen3_moe-awq", "qwen3_moe", "awq", False, "AWQ (gemm), experts only",
        QWEN3 | SMALL_ATTENTION),
    QuantizedFixture(
        "mixtral-fp8-row", "mixtral", "float-quantized", True,
        "compressed-tensors FP8 with a scale a row", MIXTRAL),
    QuantizedFixture(
        "deepseek_v3-fp8-block", "deepseek_v3", "fp8-block", True,
        "FP8 with scales of blocks of 128 x 128, in which the heads' rows of kv_b_proj do not end",
        dict(vocab_size=48, hidden_size=64, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=3, q_lora_rank=24, kv_lora_rank=40,
             qk_nope_head_dim=48, qk_rope_head_dim=8, v_head_dim=64, n_routed_experts=4,
             num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=2, n_group=1,
             topk_group=1, routed_scaling_factor=0.5, first_k_dense_replace=1,
             norm_topk_prob=True, tie_word_embeddings=False, max_position_embeddings=64,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **IDS)),
    QuantizedFixture(
        "gpt_oss-mxfp4", "gpt_oss", "mxfp4", False,
        "MXFP4 blocks of all experts as gpt-oss is released, rows of gate and up taking turns, "
        "biases beside", GPT_OSS),
]
