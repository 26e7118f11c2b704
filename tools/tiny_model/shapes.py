"""The two models' shapes, as transformers configurations and as published config.json."""

VOCAB_SIZE = 2048

TINY = dict(
    hidden_size=256, intermediate_size=320, num_hidden_layers=6, head_dim=64,
    num_attention_heads=16, num_key_value_heads=2, num_local_experts=8,
)
DRAFT = dict(
    hidden_size=128, intermediate_size=128, num_hidden_layers=2, head_dim=64,
    num_attention_heads=16, num_key_value_heads=2, num_local_experts=8,
)
SHAPES = {"rose-tiny": TINY, "rose-tiny-draft": DRAFT}

YARN = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}


def layer_types(layers: int) -> list[str]:
    return ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(layers)]


def training_config(shape: dict, ids: dict):
    from transformers import GptOssConfig

    return GptOssConfig(
        vocab_size=VOCAB_SIZE, sliding_window=128, num_experts_per_tok=4,
        layer_types=layer_types(shape["num_hidden_layers"]),
        rope_parameters={**YARN, "rope_theta": 150000.0},
        rms_norm_eps=1e-5, attention_bias=True, tie_word_embeddings=False,
        max_position_embeddings=131072, router_aux_loss_coef=0.9,
        pad_token_id=ids["<|endoftext|>"], bos_token_id=ids["<|startoftext|>"],
        eos_token_id=ids["<|return|>"], **shape,
    )


def published_config(shape: dict, ids: dict) -> dict:
    """config.json with the keys of the published gpt-oss checkpoints."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": ids["<|return|>"],
        "experts_per_token": 4,
        "head_dim": shape["head_dim"],
        "hidden_act": "silu",
        "hidden_size": shape["hidden_size"],
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": shape["intermediate_size"],
        "layer_types": layer_types(shape["num_hidden_layers"]),
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": shape["num_attention_heads"],
        "num_experts_per_tok": 4,
        "num_hidden_layers": shape["num_hidden_layers"],
        "num_key_value_heads": shape["num_key_value_heads"],
        "num_local_experts": shape["num_local_experts"],
        "output_router_logits": False,
        "pad_token_id": ids["<|endoftext|>"],
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        "rope_scaling": YARN,
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }


def generation_config(ids: dict) -> dict:
    return {
        "bos_token_id": ids["<|startoftext|>"],
        "do_sample": True,
        "eos_token_id": [ids["<|return|>"], ids["<|endoftext|>"], ids["<|call|>"]],
        "pad_token_id": ids["<|endoftext|>"],
        "transformers_version": "4.55.0.dev0",
    }
