"""A causal linear-attention language model, as plain functions on tensors.

The layout is that of flash-linear-attention's `linear_attn` checkpoints: the
same tensor names, the same config.json. Training, the golden files and the
check against other checkpoints all call the one `forward` below.

Axis names: B batch, T tokens, D model width, H heads, K key (feature) size of
a head, V value size of a head, N chunks, C tokens of a chunk.

A block does x += mixer(norm(x)); x += mlp(norm(x)). The mixer, per head:

    S_t = S_{t-1} + phi(k_t) v_t^T     z_t = z_{t-1} + phi(k_t)
    o_t = phi(q_t)^T S_t / phi(q_t)^T z_t         phi(x) = elu(x) + 1

followed by an RMS norm of o over the head and the output projection.
"""

import torch
import torch.nn.functional as F

NORMALISER_EPS = 1e-10
CHUNK = 64

# Every field that a reader of fla's linear_attn configs may ask for.
CONFIG = {
    "architectures": ["LinearAttentionForCausalLM"],
    "attn": None,
    "attn_mode": "fused_chunk",
    "bos_token_id": 0,
    "elementwise_affine": True,
    "eos_token_id": 0,
    "expand_k": 1.0,
    "expand_v": 1.0,
    "feature_map": "elu",
    "fuse_cross_entropy": True,
    "fuse_norm": True,
    "fuse_swiglu": True,
    "hidden_act": "swish",
    "hidden_ratio": 4,
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 2048,
    "model_type": "linear_attn",
    "norm_eps": 1e-06,
    "norm_feature_map": True,
    "norm_k": False,
    "norm_q": False,
    "num_heads": 6,
    "num_hidden_layers": 6,
    "num_kv_heads": None,
    "tie_feature_map_qk": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
    "use_cache": True,
    "vocab_size": 2048,
}


def check_supported(config):
    """Raises ValueError for configs whose mathematics is not written here."""
    wanted = {
        "model_type": "linear_attn",
        "feature_map": "elu",
        "norm_feature_map": True,
        "norm_q": False,
        "norm_k": False,
        "attn": None,
        "hidden_act": "swish",
    }
    for name, value in wanted.items():
        if config.get(name) != value:
            raise ValueError(
                f"{name} is {config.get(name)!r}, only {value!r} is supported"
            )


def head_sizes(config):
    """Returns (H, heads of k and v, K, V)."""
    heads = config["num_heads"]
    kv_heads = config["num_kv_heads"] or heads
    key = int(config["hidden_size"] * config["expand_k"]) // heads
    value = int(config["hidden_size"] * config["expand_v"]) // heads
    return heads, kv_heads, key, value


def mlp_width(config):
    """The MLP's inner width; fla derives it when the config has none."""
    if config["intermediate_size"]:
        return config["intermediate_size"]
    width = int(config["hidden_size"] * config["hidden_ratio"] * 2 / 3)
    return 256 * ((width + 255) // 256)


def tensor_shapes(config):
    """Returns {checkpoint name: shape}, in the order of the file."""
    width, vocab = config["hidden_size"], config["vocab_size"]
    inner = mlp_width(config)
    heads, kv_heads, key, value = head_sizes(config)
    shapes = {"model.embeddings.weight": [vocab, width]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes[at + "attn_norm.weight"] = [width]
        shapes[at + "attn.q_proj.weight"] = [heads * key, width]
        shapes[at + "attn.k_proj.weight"] = [kv_heads * key, width]
        shapes[at + "attn.v_proj.weight"] = [kv_heads * value, width]
        shapes[at + "attn.norm.weight"] = [value]
        shapes[at + "attn.o_proj.weight"] = [width, heads * value]
        shapes[at + "mlp_norm.weight"] = [width]
        shapes[at + "mlp.gate_proj.weight"] = [inner, width]
        shapes[at + "mlp.up_proj.weight"] = [inner, width]
        shapes[at + "mlp.down_proj.weight"] = [width, inner]
    shapes["model.norm.weight"] = [width]
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocab, width]
    return shapes


def random_weights(config, generator):
    """Returns fresh float32 weights: norms 1, matrices normal.

    What ends in the residual stream is smaller by the square root of the
    number of its summands, so that the stream starts with the embedding.
    """
    summands = 2 * config["num_hidden_layers"]
    weights = {}
    for name, shape in tensor_shapes(config).items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape)
            continue
        std = config["initializer_range"]
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= summands**0.5
        weights[name] = torch.randn(shape, generator=generator) * std
    return weights


def zero_state(config, batch, dtype):
    """Returns one (S [B,H,K,V], z [B,H,K]) of zeros per layer."""
    heads, _, key, value = head_sizes(config)
    return [
        (
            torch.zeros(batch, heads, key, value, dtype=dtype),
            torch.zeros(batch, heads, key, dtype=dtype),
        )
        for _ in range(config["num_hidden_layers"])
    ]


def state_bytes(config):
    """Bytes of one session's state in float32."""
    heads, _, key, value = head_sizes(config)
    return 4 * config["num_hidden_layers"] * heads * key * (value + 1)


def rms_norm(x, weight, eps):
    """x [..., n], weight [n]."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def mix_recurrent(q, k, v, state):
    """The definition: one token after the other.

    q, k [B,T,H,K] (mapped, q scaled), v [B,T,H,V], state (S, z).
    Returns o [B,T,H,V] and the state after the last token.
    """
    sums, z = state
    outputs = []
    for t in range(q.shape[1]):
        sums = sums + k[:, t, :, :, None] * v[:, t, :, None, :]
        z = z + k[:, t]
        above = (q[:, t, :, :, None] * sums).sum(-2)
        below = (q[:, t] * z).sum(-1, keepdim=True)
        outputs.append(above / (below + NORMALISER_EPS))
    return torch.stack(outputs, dim=1), (sums, z)


def to_chunks(x):
    """[B,T,H,n] -> [B,H,N,C,n], zeros behind the last token."""
    batch, tokens, heads, size = x.shape
    length = min(CHUNK, tokens)
    chunks = -(-tokens // length)
    x = F.pad(x, (0, 0, 0, 0, 0, chunks * length - tokens))
    x = x.reshape(batch, chunks, length, heads, size)
    return x.permute(0, 3, 1, 2, 4)


def mix_chunked(q, k, v, state):
    """The same as mix_recurrent, in parallel: quick on long sequences.

    Inside a chunk a masked C x C matrix, between chunks running sums. The
    normaliser is carried as one more value column that is always 1.
    """
    batch, tokens, heads, _ = q.shape
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    q, k, v = to_chunks(q), to_chunks(k), to_chunks(v)
    first = torch.cat([state[0], state[1][..., None]], dim=-1)
    first = first[:, :, None]  # [B,H,1,K,V+1]
    inside = (q @ k.transpose(-1, -2)).tril() @ v
    added = (k.transpose(-1, -2) @ v).to(first.dtype)  # [B,H,N,K,V+1]
    sums = torch.cat([first, added], dim=2).cumsum(dim=2)
    out = (inside + q @ sums[:, :, :-1]).to(first.dtype)  # [B,H,N,C,V+1]
    out = out[..., :-1] / (out[..., -1:] + NORMALISER_EPS)
    out = out.permute(0, 2, 3, 1, 4).reshape(batch, -1, heads, out.shape[-1])
    last = sums[:, :, -1]
    return out[:, :tokens], (last[..., :-1], last[..., -1])


def attention(weights, at, config, x, state, mix):
    """The mixer of one layer. x [B,T,D] -> [B,T,D] and the new state."""
    heads, kv_heads, key, value = head_sizes(config)
    batch, tokens, _ = x.shape
    dtype = state[0].dtype

    def split_heads(y, count):
        y = y.reshape(batch, tokens, count, -1).to(dtype)
        return y.repeat_interleave(heads // count, dim=2) if (
            count < heads
        ) else y

    # One product instead of three: x is read and converted once.
    names = [f"{at}attn.{name}_proj.weight" for name in "qkv"]
    y = F.linear(x, torch.cat([weights[name] for name in names]))
    q, k, v = y.split(
        [heads * key, kv_heads * key, kv_heads * value], dim=-1
    )
    q = (F.elu(split_heads(q, heads)) + 1) * key**-0.5
    k = F.elu(split_heads(k, kv_heads)) + 1
    v = split_heads(v, kv_heads)
    out, state = mix(q, k, v, state)
    out = rms_norm(out, weights[at + "attn.norm.weight"], config["norm_eps"])
    out = out.reshape(batch, tokens, heads * value)
    return F.linear(out, weights[at + "attn.o_proj.weight"]), state


def mlp(weights, at, x):
    """down(silu(gate x) * up x). x [B,T,D] -> [B,T,D]."""
    names = [at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"]
    y = F.linear(x, torch.cat([weights[name] for name in names]))
    gate, up = y.chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, weights[at + "mlp.down_proj.weight"])


def forward(weights, config, ids, state=None, mix=mix_chunked, dropout=0.0):
    """ids [B,T] int64 -> logits [B,T,vocab] and the state after the last.

    `state` is what an earlier call returned: the sequence goes on from there.
    The weights' dtype decides the precision. `dropout` is for training only:
    it silences channels of a whole sequence, which needs few random numbers.
    """
    eps = config["norm_eps"]
    embedding = weights["model.embeddings.weight"]
    if state is None:
        state = zero_state(config, ids.shape[0], embedding.dtype)

    def drop(y):
        if not dropout:
            return y
        kept = torch.full_like(y[:, :1].detach(), 1 - dropout).bernoulli()
        return y * (kept / (1 - dropout))

    new_state = []
    x = drop(F.embedding(ids, embedding))
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = rms_norm(x, weights[at + "attn_norm.weight"], eps)
        y, layer_state = attention(weights, at, config, y, state[layer], mix)
        new_state.append(layer_state)
        x = x + drop(y)
        y = rms_norm(x, weights[at + "mlp_norm.weight"], eps)
        x = x + drop(mlp(weights, at, y))
    x = rms_norm(x, weights["model.norm.weight"], eps)
    head = embedding if config["tie_word_embeddings"] else (
        weights["lm_head.weight"]
    )
    return F.linear(x, head), new_state
