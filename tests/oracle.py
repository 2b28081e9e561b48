"""The paper's equations once more: NumPy, float64, one example at a time, one loop for every sum.

Shares no code with the package; reads weights out of a model's state dict by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gru(x, h, w_ih, w_hh, b_ih, b_hh):
    """One GRU step in PyTorch's form (Cho et al. 2014, reset gate after the product)."""
    size = len(h)
    i, g = w_ih @ x + b_ih, w_hh @ h + b_hh
    r = sigmoid(i[:size] + g[:size])
    z = sigmoid(i[size : 2 * size] + g[size : 2 * size])
    n = np.tanh(i[2 * size :] + r * g[2 * size :])
    return (1 - z) * n + z * h


@dataclass
class Trace:
    """What the oracle saw at each target step."""

    probs: list = field(default_factory=list)  # {extended id: p}, every word of V and of the source
    copy_probs: list = field(default_factory=list)
    rho: list = field(default_factory=list)
    switch: list = field(default_factory=list)  # p_gen or λ
    attention: list = field(default_factory=list)


class Oracle:
    def __init__(self, model):
        self.w = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
        self.c = model.config
        self.features = []  # the feature ids of the source
        self.letters = []  # of each word that owns a slot, the ids of its letters

    def read_features(self, s):
        """What the state s reads of the source's features, by the attention's W and v: added to the context."""
        w, p = self.w, "model.decoder."
        vectors, scores = self.embed_features(), []
        for e in vectors:
            key = w[p + "feature_proj.key_proj.weight"] @ e + w[p + "feature_proj.key_proj.bias"]
            inside = np.tanh(key + w[p + "attention.query_proj.weight"] @ s)
            scores.append(math.exp(w[p + "attention.score_proj.weight"][0] @ inside))
        contents = [w[p + "feature_proj.content_proj.weight"] @ e for e in vectors]
        return sum((score / sum(scores) * content for score, content in zip(scores, contents, strict=True)), 0.0)

    def embed_features(self):
        known = [feature for feature in self.features if 1 < feature < self.c.feature_vocab_size]  # 1: the unknown one
        return [self.w["model.encoder.feature_embeddings.weight"][feature] for feature in known]

    def embed(self, word):
        """e(y), of a word outside the vocabulary e(UNK), or that of the word in another case, and what its letters
        say."""
        e, slot = self.w["model.encoder.embed_tokens.weight"], word - self.c.vocab_size
        if slot < 0:
            return e[word]
        if slot >= len(self.letters):
            return e[self.c.unk_token_id]
        first = self.c.letter_vocab_size
        known = [x - first for x in self.letters[slot] if x >= first] or [self.c.unk_token_id]
        return e[known[0]] + self.compose([x for x in self.letters[slot] if x < first])

    def compose(self, letters):
        """Kim et al. 2016: filters over three letters, their largest values over the word, projected; besides, a
        projection of the last three letters."""
        w, p = self.w, "model.encoder.letter_encoder."
        table = w[p + "embed_letters.weight"]
        nothing = np.zeros(table.shape[1])
        vectors = [nothing, *(table[x] for x in letters), nothing]
        largest = np.zeros(self.c.embedding_size)
        for i in range(len(letters)):
            value = w[p + "filters.weight"] @ np.concatenate(vectors[i : i + 3]) + w[p + "filters.bias"]
            largest = np.maximum(largest, value)
        last = np.concatenate([nothing, nothing, *vectors[1:-1]][-3:]) if letters else np.zeros(3 * len(nothing))
        return w[p + "output_proj.weight"] @ largest + w[p + "ending_proj.weight"] @ last

    def encode(self, source, inputs=None):
        """h_j of every position, and the last states of both directions in the top layer."""
        embeddings, width = inputs or [self.embed(x) for x in source], self.c.encoder_hidden_size
        xs = [*embeddings]
        places, ties = {}, "model.encoder.tied_repetitions."  # places of each word that is rare
        if self.c.tie_repetitions:
            for j, x in enumerate(source):
                if x >= self.c.vocab_size or self.w[ties + "is_rare"][x]:
                    places.setdefault(x, []).append(j)
            places = {x: js for x, js in places.items() if len(js) > 1}
            nothing, w_n = np.zeros(self.c.embedding_size), self.w[ties + "neighbour_proj.weight"]
            around = [nothing] * 3 + embeddings + [nothing] * 3
            for js in places.values():
                for j in js:
                    other = js[1] if j == js[0] else js[0]
                    mark = "first_embedding.weight" if j == js[0] else "embedding.weight"
                    xs[j] = xs[j] + self.w[ties + mark].reshape(-1) + w_n @ np.concatenate(around[other : other + 7])
        for layer in range(self.c.num_hidden_layers):
            runs = []
            for suffix, order in (("", range(len(xs))), ("_reverse", reversed(range(len(xs))))):
                names = [
                    f"model.encoder.layers.{layer}.{n}_l0{suffix}"
                    for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                h, states = np.zeros(width), {}
                for j in order:
                    h = states[j] = gru(xs[j], h, *(self.w[name] for name in names))
                runs.append((states, h))
            xs = [np.concatenate([runs[0][0][j], runs[1][0][j]]) for j in range(len(xs))]
            last = np.concatenate([runs[0][1], runs[1][1]])
        states = [*xs]
        for first, *others in places.values():
            xs[first] = xs[first] + self.w[ties + "first_proj.weight"] @ states[others[0]]
            for j in others:
                xs[j] = xs[j] + self.w[ties + "output_proj.weight"] @ states[first]
        if self.c.encoder_residual:
            xs = [x + self.w["model.encoder.residual_proj.weight"] @ e for x, e in zip(xs, embeddings, strict=True)]
        for e in self.embed_features():
            xs = [x + self.w["model.encoder.feature_state_proj.weight"] @ e for x in xs]
        return xs, last

    def attend(self, s, h, coverage):
        w, p = self.w, "model.decoder.attention."
        scores = []
        for j in range(len(h)):
            inside = w[p + "key_proj.weight"] @ h[j] + w[p + "key_proj.bias"] + w[p + "query_proj.weight"] @ s
            if self.c.use_coverage:
                inside = inside + w[p + "coverage_proj.weight"][:, 0] * coverage[j]
            scores.append(float(w[p + "score_proj.weight"][0] @ np.tanh(inside)))
        top = max(scores)
        exps = [math.exp(x - top) for x in scores]
        return np.array(exps) / sum(exps)

    def point(self, source, words, inputs=None):
        """Pointer Networks: p(C_i | C_<i) of every position and, last, of the end symbol, for each given word.

        inputs: the vectors of the positions, where they are no words; `words` from vocab_size on are then positions.
        """
        w, p = self.w, "model.decoder.attention."
        if inputs is not None:
            w_in, b_in = w["model.encoder.feature_proj.weight"], w["model.encoder.feature_proj.bias"]
            inputs = [w_in @ np.array(x, dtype=float) + b_in for x in inputs]
        h, last = self.encode(source, inputs)
        h = [*h, w["model.decoder.end.weight"][0]]
        d = np.tanh(w["model.decoder.init_proj.weight"] @ last + w["model.decoder.init_proj.bias"])
        cell = [w[f"model.decoder.cell.{n}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        shares = []
        for word in words:
            fed = inputs is not None and word >= self.c.vocab_size
            d = gru(inputs[word - self.c.vocab_size] if fed else self.embed(word), d, *cell)
            u = [
                w[p + "score_proj.weight"][0]
                @ np.tanh(w[p + "key_proj.weight"] @ e + w[p + "key_proj.bias"] + w[p + "query_proj.weight"] @ d)
                for e in h
            ]
            exps = [math.exp(x - max(u)) for x in u]
            shares.append(np.array(exps) / sum(exps))
        return shares

    def retrieve(self, source, kinds, words):
        """CoreQA: {id: p} after each given word, and p of writing from each position; `kinds` as token_type_ids."""
        w, p = self.w, "model.decoder."
        question = [j for j, kind in enumerate(kinds) if kind == 0]
        objects = [j for j, kind in enumerate(kinds) if kind == 3]
        states, q = self.encode([source[j] for j in question])
        memory = dict(zip(question, states, strict=True))
        memory |= {j: np.concatenate([self.embed(source[i]) for i in (j - 2, j - 1, j)]) for j in objects}
        size = {0: 2 * self.c.encoder_hidden_size, 3: 3 * self.c.embedding_size}

        def score(name, query, j):
            parts = [w[f"{p}{name}.{part}_proj.weight"] for part in ("key", "query", "coverage", "score")]
            inside = parts[0] @ memory[j] + w[f"{p}{name}.key_proj.bias"] + parts[1] @ query
            return float(parts[3][0] @ np.tanh(inside + parts[2][:, 0] * history[j]))

        def softmax(scores):
            total = sum(math.exp(x) for x in scores.values())
            return {j: math.exp(x) / total for j, x in scores.items()}

        def read(weights, kind):
            return sum((share * memory[j] for j, share in weights.items()), np.zeros(size[kind]))

        s = np.tanh(w[p + "init_proj.weight"] @ q + w[p + "init_proj.bias"])
        history, before = dict.fromkeys(memory, 0.0), dict.fromkeys(memory, 0.0)
        cell = [w[f"{p}cell.{n}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        steps = []
        for word in words:
            reads, contexts, attended = [], [], {}
            for kind, places in ((0, question), (3, objects)):
                reads.append(read(softmax({j: before[j] for j in places if source[j] == word}), kind))
                name, query = ("attention", s) if kind == 0 else ("fact_attention", np.concatenate([s, q]))
                weights = softmax({j: score(name, query, j) for j in places})
                contexts.append(read(weights, kind))
                attended |= weights
            joined = np.concatenate(contexts) + self.read_features(s)
            s = gru(np.concatenate([self.embed(word), *reads, joined]), s, *cell)
            r = w[p + "readout_proj.weight"] @ np.concatenate([s, joined]) + w[p + "readout_proj.bias"]
            psi = {v: float(w["lm_head.weight"][v] @ r) for v in range(self.c.vocab_size)}
            before = {j: score("copy_scores" if kinds[j] == 0 else "retrieve_scores", s, j) for j in memory}
            z = sum(math.exp(x) for x in [*psi.values(), *before.values()])
            probs = {v: math.exp(x) / z for v, x in psi.items()}
            for j, x in before.items():
                probs[source[j]] = probs.get(source[j], 0.0) + math.exp(x) / z
            steps.append((probs, {j: math.exp(x) / z for j, x in before.items()}))
            history = {j: history[j] + attended[j] for j in memory}
        return steps

    def read_with_bart(self, h, source, words):
        """s_t after each given word, and a_t of the last layer: a BART decoder, norms after the sums.

        It attends to what features are projected to after the words; a_t is scaled to sum to one over the words.
        """
        w, p, heads = self.w, "model.decoder.text_decoder.", self.c.decoder.decoder_attention_heads

        def linear(name, x):
            return w[name + ".weight"] @ x + w[name + ".bias"]

        def project(name, x):  # only where widths differ
            return linear(name, x) if name + ".weight" in w else x

        def normalize(name, x):
            deviation = x - x.mean()
            return w[name + ".weight"] * deviation / math.sqrt((deviation**2).mean() + 1e-5) + w[name + ".bias"]

        def attend(name, x, others):
            """What x reads of the others, and for each head how much of each."""
            size, parts, shares = len(x) // heads, [], []
            query = linear(name + ".q_proj", x)
            keys, values = ([linear(f"{name}.{kind}_proj", y) for y in others] for kind in "kv")
            for head in (slice(i * size, (i + 1) * size) for i in range(heads)):
                scores = [float(query[head] @ key[head]) / math.sqrt(size) for key in keys]
                exps = [math.exp(score - max(scores)) for score in scores]
                shares.append([each / sum(exps) for each in exps])
                parts.append(sum(share * value[head] for share, value in zip(shares[-1], values, strict=True)))
            return linear(name + ".out_proj", np.concatenate(parts)), shares

        memory = [project("model.decoder.memory_proj", x) for x in h]
        memory += [w["model.decoder.feature_proj.weight"] @ e for e in self.embed_features()]
        known = [word if self.c.copies or word < self.c.vocab_size else self.c.unk_token_id for word in words]
        xs = [project("model.decoder.input_proj", self.embed(word)) for word in known]
        if self.c.selective_read:  # of all places of y_{t-1} the same
            places = [[h[j] for j, word in enumerate(source) if word == y] for y in words]
            zetas = [np.mean(of_word, axis=0) if of_word else np.zeros_like(h[0]) for of_word in places]
            xs = [x + w["model.decoder.read_proj.weight"] @ zeta for x, zeta in zip(xs, zetas, strict=True)]
        xs = [x + w[p + "embed_positions.weight"][2 + t] for t, x in enumerate(xs)]
        xs = [normalize(p + "layernorm_embedding", x) for x in xs]
        for number in range(self.c.decoder.decoder_layers):
            name = f"{p}layers.{number}."
            reads = [attend(name + "self_attn", x, xs[: t + 1])[0] for t, x in enumerate(xs)]
            xs = [normalize(name + "self_attn_layer_norm", x + read) for x, read in zip(xs, reads, strict=True)]
            reads, shares = zip(*(attend(name + "encoder_attn", x, memory) for x in xs), strict=True)
            xs = [normalize(name + "encoder_attn_layer_norm", x + read) for x, read in zip(xs, reads, strict=True)]
            inner = [linear(name + "fc1", x) for x in xs]
            inner = [np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]) for x in inner]  # GELU
            outer = [linear(name + "fc2", x) for x in inner]
            xs = [normalize(name + "final_layer_norm", x + y) for x, y in zip(xs, outer, strict=True)]
        attentions = [np.mean(of_step, axis=0)[: len(h)] for of_step in shares]
        return xs, [attention / attention.sum() for attention in attentions]

    def run(self, source, words):
        """Decodes with the words y_0 … y_{T-1} given: a `Trace` with p(· | y_<t) for t = 1 … T."""
        w, c = self.w, self.c
        h, last = self.encode(source)
        if c.decoder is None:
            s = np.tanh(w["model.decoder.init_proj.weight"] @ last + w["model.decoder.init_proj.bias"])
        else:
            states, attentions = self.read_with_bart(h, source, words)
        coverage, previous_scores, trace = np.zeros(len(source)), np.zeros(len(source)), Trace()
        after, a = c.copy_mechanism == "pointer_generator", np.zeros(len(source))
        for t, word in enumerate(words):
            rho = np.zeros(len(source))
            same = [j for j, x in enumerate(source) if x == word]
            for j in same:
                rho[j] = math.exp(previous_scores[j]) / sum(math.exp(previous_scores[i]) for i in same)
            zeta = sum((rho[j] * h[j] for j in range(len(source))), np.zeros_like(h[0]))
            context, e = last, self.embed(word if c.copies or word < c.vocab_size else c.unk_token_id)
            if c.decoder is not None:
                s, a = states[t], attentions[t]
                context = sum(a[j] * h[j] for j in range(len(source)))
            elif c.attention:
                a = a if after else self.attend(s, h, coverage)
                context = sum((a[j] * h[j] for j in range(len(source))), np.zeros_like(h[0]))
                context = context + self.read_features(s)
            if c.decoder is None:
                cell = [w[f"model.decoder.cell.{n}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                s = gru(np.concatenate([e, zeta, context] if c.selective_read else [e, context]), s, *cell)
            if c.decoder is None and after:  # See et al. 2017, Eq. 1: by the state that has read the word
                a = self.attend(s, h, coverage)
                context = sum(a[j] * h[j] for j in range(len(source))) + self.read_features(s)
            if c.attention:
                coverage = coverage + a
                trace.attention.append(a)
            parts = {"state": s, "context": context, "embedding": e, "selective_read": zeta}
            psi_g, r = self.generate(parts)
            psi_c, probs, copied = [], {}, np.zeros(0)
            if c.copy_mechanism == "copynet":
                psi_c = [float(np.tanh(w["model.decoder.copy_proj.weight"] @ h[j]) @ r) for j in range(len(source))]
                z = sum(math.exp(x) for x in psi_g.values()) + sum(math.exp(x) for x in psi_c)
                probs = {v: math.exp(x) / z for v, x in psi_g.items()}
                copied = np.array([math.exp(x) / z for x in psi_c])
            else:
                z = sum(math.exp(x) for x in psi_g.values())
                copying = 0.0
                if c.copies:
                    names = ["context", "state", "embedding"] if c.copy_mechanism == "pointer_generator" else ["state"]
                    logit = w["model.decoder.switch_proj.weight"][0] @ np.concatenate([parts[name] for name in names])
                    switch = sigmoid(float(logit + w["model.decoder.switch_proj.bias"][0]))
                    trace.switch.append(switch)
                    copying = 1 - switch if c.copy_mechanism == "pointer_generator" else switch
                    copied = copying * a
                probs = {v: (1 - copying) * math.exp(x) / z for v, x in psi_g.items()}
            for j, share in enumerate(copied):
                probs[source[j]] = probs.get(source[j], 0.0) + share
            trace.probs.append(probs)
            trace.copy_probs.append(copied)
            trace.rho.append(rho)
            previous_scores = np.array(psi_c) if psi_c else previous_scores
        return trace

    def generate(self, parts):
        """ψ_g of every word, and r."""
        w, c = self.w, self.c
        r = parts["state"]
        if list(c.readout) != ["state"]:
            joined = np.concatenate([parts[name] for name in c.readout])
            if c.copy_mechanism == "pointer_generator":
                p = "model.decoder.linear_readout_proj."
                r = w[p + "weight"] @ joined + w[p + "bias"]
            else:
                p = "model.decoder.readout_proj."
                r = np.tanh(w[p + "weight"] @ joined + w[p + "bias"])
        o = w["lm_head_proj.weight"] @ r if c.tie_word_embeddings else r
        psi_g = {v: float(w["lm_head.weight"][v] @ o) for v in range(c.vocab_size)}
        if c.copy_mechanism == "pointer_generator":
            psi_g = {v: x + w["lm_head.bias"][v] for v, x in psi_g.items()}
        return psi_g, r

    def loss(self, source, target):
        """Mean over the target of −log p(y_t) and what the mechanism adds.

        A word that neither V nor the source has counts as UNK.
        """
        c = self.c
        trace = self.run(source, [c.decoder_start_token_id, *target[:-1]])
        coverage, losses = np.zeros(len(source)), []
        for t, word in enumerate(target):
            probs = trace.probs[t]
            word = word if word in probs else c.unk_token_id
            here = [j for j, x in enumerate(source) if x == word]
            loss = -math.log(probs[word])
            if c.copy_mechanism == "gated":
                switch = trace.switch[t]
                if c.gated_loss == "summed":
                    generated = {
                        v: (p - sum(trace.copy_probs[t][j] for j, x in enumerate(source) if x == v)) / (1 - switch)
                        for v, p in probs.items()
                    }
                    loss = -(1 - switch) * math.log(generated[word]) if word < c.vocab_size else 0.0
                    if here:
                        loss -= switch * math.log(sum(trace.attention[t][j] for j in here))
                loss -= c.gate_loss_weight * math.log(switch if here and word != c.eos_token_id else 1 - switch)
            if c.coverage_loss_weight:
                a = trace.attention[t]
                loss += c.coverage_loss_weight * sum(min(a[j], coverage[j]) for j in range(len(source)))
                coverage = coverage + a
            losses.append(loss)
        return sum(losses) / len(losses)
