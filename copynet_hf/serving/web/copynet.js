/**
 * CopyNet in the browser: from a text to an output and the source position of each copied word, with onnxruntime-web.
 *
 *     import { CopyNet } from "./copynet.js";
 *     const model = await CopyNet.fromPretrained("./model/");
 *     const [output] = await model.predict("please send budget_2031.xlsx to Ottilie Krahn", { num_beams: 4 });
 *
 * A port of `onnx_search.py` and `prediction.py` of the Python package copynet_hf, for one source at a time. Names are
 * the same in JavaScript's spelling; options have the names of generation_config.json. Shapes: S source positions, B
 * beams, R outputs, T words of an output, V words, K slots.
 */

import { InferenceSession, Tensor, env } from "./onnxruntime-web/ort.wasm.bundle.min.mjs";
import { Tokenizer, countLeadingSpaces, cutSpan, isBlank, listChanges } from "./tokenizer.js";

env.wasm.numThreads = 1; // more need headers of cross-origin isolation, which static hosts do not send
env.logLevel = "error";

const LOWEST = -1e9; // the score of an impossible beam, as in Transformers
const TINY = 2 ** -126; // the smallest normal float32
const MAX_BLOCKED_MS = 50; // the longest time for which a search keeps the page from reacting

/**
 * @typedef {object} Prediction an output and the origin of its words
 * @property {string} text the output, without spaces before and after it
 * @property {number | null} score its probability, the product over its tokens, the end symbol included; null for an
 *     empty source
 * @property {number | null} confidence the probability that it is right, by the calibration saved with the model,
 *     without one the score; null for an empty source
 * @property {boolean | null} accepted whether the output is whole and its confidence at least the option
 *   min_confidence; null without it
 * @property {string[]} words (T) each with the space that precedes it; concatenated, they are the text
 * @property {number[] | null} wordScores (T) the probability of each word, with those of the marks before it; null for
 *     an empty source
 * @property {number[]} ids (T) their ids
 * @property {boolean[]} oov (T) whether the word is out-of-vocabulary
 * @property {boolean[]} copied (T) whether copying accounts for more than half of the word's probability
 * @property {number[]} copyShares (T) the share, from 0 to 1, of the word's probability that copying accounts for
 * @property {(number | null)[]} sourcePositions (T) positions in `source.words`; null where the source does not
 *     contain the word
 * @property {([number, number] | null)[]} sourceSpans (T) start and end of the word that was copied, in `source.text`;
 *     null where the word was generated
 * @property {[number, number, number, number][]} copiedSpans what was copied: start in the output, its end, start in
 *     the source, its end. Spans are in the units of JavaScript's strings (UTF-16), not in characters as in Python
 * @property {Float32Array[]} copyProbs (T, S) probability of copying from each position at each step
 * @property {boolean} isTruncated whether the model read only a part of the text
 * @property {boolean} isCut whether the output ended without an end symbol, as at max_new_tokens
 * @property {boolean} isEmpty whether the source has no words; the output is empty, too
 * @property {import("./tokenizer.js").Source} source
 */

// ---- search

/** An exported CopyNet. */
export class CopyNet {
  static defaults = {
    num_beams: 1,
    num_return_sequences: 1,
    max_new_tokens: 20,
    min_new_tokens: 0,
    length_penalty: 1,
    early_stopping: false,
    max_time: null, // seconds after which a search ends with what it has
    forbid_unk: false,
    eos_token_id: null,
    // A regular expression: a word in which it finds something may only be written if the source has it.
    copied_only: "",
  };

  constructor(encoder, decoder, tokenizer, config, generationConfig) {
    this.encoder = encoder;
    this.decoder = decoder;
    this.tokenizer = tokenizer;
    const saved = withoutNulls(generationConfig);
    for (const bound of ["max", "min"]) {
      // max_length and min_length count the start token
      const length = saved[`${bound}_length`];
      if (length !== undefined) saved[`${bound}_new_tokens`] ??= length - 1;
    }
    delete saved.copied_only; // an option of the call
    this.generationConfig = { ...CopyNet.defaults, ...saved };
    /** Whether the model copies. */
    this.copies = decoder.outputNames.includes("copy_probs");
    /** Whether it reads facts. */
    this.readsFacts = false;
    /** Whether it reads features. */
    this.readsFeatures = encoder.inputNames.includes("feature_ids");
    /** Whether it reads the letters of out-of-vocabulary words. */
    this.readsLetters = encoder.inputNames.includes("letter_ids");
    /** What separates them where they are typed. */
    this.featuresSeparator = tokenizer.featuresSeparator;
    /** The option `copied_only` of all calls; null: each call has its own. */
    this.copiedOnly = null;
    this.calibration = config.calibration ?? null; // slope and intercept
    this.tokenIds = { ...config, ...this.generationConfig };
    this.lastPause = 0;
  }

  /**
   * Loads the model from the folder `model` that `copynet-hf export --target web` wrote: a URL with a slash at the end,
   * relative to the page.
   */
  static async fromPretrained(folder) {
    const base = new URL(folder, self.location.href);
    const read = async (name) => {
      const response = await fetch(new URL(name, base));
      if (!response.ok) throw new Error(`${response.url} cannot be loaded: the server says ${response.status}`);
      return response;
    };
    const graphs = ["encoder.onnx", "decoder.onnx"].map(async (name) => (await read(name)).arrayBuffer());
    const files = ["vocabulary.json", "config.json", "generation_config.json"];
    const contents = files.map(async (name) => (await read(name)).json());
    const [encoder, decoder, vocabulary, config, generationConfig] = await Promise.all([...graphs, ...contents]);
    const sessions = [await InferenceSession.create(encoder), await InferenceSession.create(decoder)];
    return new CopyNet(sessions[0], sessions[1], new Tokenizer(vocabulary), config, generationConfig);
  }

  /**
   * Encodes the text, generates, and traces each output word to the source.
   *
   * @param {string} text
   * @param {object} options by default those of the saved generation config; `features`, a list of strings, for a model
   *     that reads features
   * @returns {Promise<Prediction[]>} `num_return_sequences` outputs, best first; empty ones if the text has no words
   */
  async predict(text, options = {}) {
    if (typeof text !== "string") throw new TypeError(`text is ${JSON.stringify(text)}: pass a string.`);
    const features = options.features ?? null;
    if (features === null && this.readsFeatures) {
      throw new TypeError("the model reads features, and the text has none: pass features, a list of strings.");
    }
    if (features?.length && !this.readsFeatures) {
      throw new TypeError("features are given, but the model reads none: leave them out.");
    }
    const source = this.tokenizer.encode(text, features ?? []);
    const isEmpty = this.tokenizer.isBlank(source);
    const sequences = await this.generate(source, options);
    const trace = await this.traceCopies(sequences, source, options);
    const ends = endTokenIds(this.#searchOptions(withoutNulls(options)));
    return sequences.map((sequence, row) => {
      const end = sequence.findIndex((id, step) => step > 0 && ends.includes(id));
      const steps = sequence.slice(1, end < 0 ? undefined : end + 1).map((id, step) => ({ id, step }));
      const written = isEmpty ? [] : steps.filter(({ id }) => !this.tokenizer.skippedIds.has(id));
      const tokens = this.tokenizer.decodeWords(written.map(({ id }) => id), source);
      const spaced = this.tokenizer.addSpaces(tokens);
      const isShown = (_, at) => !this.tokenizer.marks.has(tokens[at]);
      const [kept, words] = [written.filter(isShown), spaced.filter(isShown)];
      const ids = kept.map(({ id }) => id);
      const copyShares = kept.map(({ step }) => trace.copied[row][step]);
      const positions = kept.map(({ step }) => trace.sourcePositions[row][step]);
      const probs = trace.tokenProbs[row];
      const changes = listChanges(tokens, this.tokenizer.marks);
      const sourceSpans = positions.map((position, at) => {
        const span = copyShares[at] > 0.5 && position >= 0 && words[at] !== "" ? source.spans[position] : null;
        return span && cutSpan(source.text, span, changes[at]);
      });
      const score = isEmpty ? null : steps.reduce((product, { step }) => product * probs[step], 1);
      const confidence = score === null ? null : calibrate(score, this.calibration);
      const threshold = options.min_confidence ?? null;
      const isCut = !isEmpty && end < 0;
      return {
        text: spaced.join(""),
        score,
        confidence,
        accepted: threshold === null ? null : confidence !== null && confidence >= threshold && !isCut,
        words,
        wordScores: isEmpty ? null : scoreWords(tokens, written.map(({ step }) => probs[step]), this.tokenizer.marks),
        ids,
        oov: ids.map((id) => id >= this.tokenizer.words.length),
        copied: copyShares.map((share) => share > 0.5),
        copyShares,
        sourcePositions: positions.map((position) => (position < 0 ? null : position)),
        sourceSpans,
        copiedSpans: mergeSpans(words, sourceSpans, source.text),
        copyProbs: kept.map(({ step }) => trace.copyProbs[row][step]),
        isTruncated: source.isTruncated,
        isCut,
        isEmpty,
        source,
      };
    });
  }

  /**
   * Greedy search, or beam search with `num_beams` above 1: (R, 1 + T) ids, starting with the start token, best first.
   */
  async generate(source, options = {}) {
    const search = this.#searchOptions(options);
    const { memory, state, forbidden } = await this.#encode(source);
    const unknown = this.tokenIds.unk_token_id;
    if (search.forbid_unk && !endTokenIds(search).includes(unknown)) forbidden[unknown] = 1;
    if (search.copied_only) {
      const grounded = new Set(source.ids);
      for (const id of this.tokenizer.matchingIds(search.copied_only)) if (!grounded.has(id)) forbidden[id] = 1;
    }
    return search.num_beams === 1
      ? [await this.#greedy(memory, state, forbidden, search)]
      : this.#beams(memory, state, forbidden, search);
  }

  /**
   * The origin of each word of `sequences`, which `generate` returned for this source; of a model that does not copy,
   * all copy shares and probabilities are 0. The options are those that were passed to `generate`; with `eos_token_id:
   * null`, the saved end tokens count.
   */
  async traceCopies(sequences, source, options = {}) {
    const search = this.#searchOptions(withoutNulls(options));
    const ends = endTokenIds(search);
    const { memory, state: initial } = await this.#encode(source);
    const sourceIds = Array.from(memory["memory.ids"].data, Number);
    const isWord = memory["memory.mask"].data;
    const steps = sequences[0].length - 1;
    const trace = {
      tokenProbs: sequences.map(() => new Float32Array(steps)),
      copied: sequences.map(() => new Float32Array(steps)),
      copyProbs: sequences.map(() => []),
      sourcePositions: sequences.map(() => new Array(steps).fill(-1)),
    };
    let state = selectOutputs(initial, new Array(sequences.length).fill(0));
    for (let step = 0; step < steps; step += 1) {
      const outputs = await this.#step(sequences.map((row) => row[step]), memory, state, search);
      state = outputs.state;
      sequences.forEach((row, number) => {
        const word = row[step + 1];
        const copyProbs = outputs.copyProbs[number] ?? new Float32Array(sourceIds.length);
        trace.copyProbs[number].push(copyProbs);
        if (row.slice(1, step + 1).some((id) => ends.includes(id))) return; // behind the first end token
        const isMatch = (id, at) => this.copies && id === word && isWord[at];
        const positions = sourceIds.flatMap((id, position) => (isMatch(id, position) ? [position] : []));
        const prob = Math.min(Math.exp(outputs.logProbs[number][word]), 1); // rounding can take log p above 0
        const copied = positions.reduce((sum, position) => sum + copyProbs[position], 0);
        trace.tokenProbs[number][step] = prob;
        trace.copied[number][step] = Math.min(copied / Math.max(prob, TINY), 1);
        if (!positions.length) return;
        const likeliest = argmax(positions.map((position) => copyProbs[position]));
        trace.sourcePositions[number][step] = positions[likeliest];
      });
    }
    return trace;
  }

  /** The options, completed by the saved generation config; null is as good as left out, but for `eos_token_id`. */
  #searchOptions(options) {
    const names = [...Object.keys(CopyNet.defaults), "signal", "features", "min_confidence"];
    const unsupported = Object.keys(options).filter((name) => !names.includes(name));
    if (unsupported.length) {
      throw new TypeError(`${unsupported.join(", ")} is not supported: use ${names.join(", ")}.`);
    }
    const ends = options.eos_token_id === null ? { eos_token_id: null } : {};
    const search = { ...this.generationConfig, ...withoutNulls(options), ...ends };
    for (const name of ["num_beams", "num_return_sequences", "max_new_tokens"]) {
      if (!(Number.isInteger(search[name]) && search[name] >= 1)) {
        throw new RangeError(`${name} is ${search[name]}: use a whole number, 1 or more.`);
      }
    }
    const { length_penalty: penalty, max_new_tokens: most } = search;
    if (!Number.isFinite(penalty)) throw new RangeError(`length_penalty is ${penalty}: use a number.`);
    const { min_new_tokens: least, min_confidence: threshold } = withoutNulls(options);
    if (least !== undefined && !(Number.isInteger(least) && least >= 0)) {
      throw new RangeError(`min_new_tokens is ${least}: use a whole number, 0 or more.`);
    }
    if (least > most) {
      throw new RangeError(`min_new_tokens is ${least}, and max_new_tokens ${most}: use a smaller min_new_tokens.`);
    }
    if (threshold !== undefined && !(typeof threshold === "number" && threshold >= 0 && threshold <= 1)) {
      throw new RangeError(`min_confidence is ${threshold}: use a number between 0 and 1.`);
    }
    if (search.num_return_sequences > search.num_beams) {
      throw new RangeError(
        `num_return_sequences=${search.num_return_sequences} is more than num_beams=${search.num_beams}: use at ` +
          "least as many beams.",
      );
    }
    return search;
  }

  /** The decoder's memory, its initial state, and `forbidden` (V + K), 1 for the words that no output may hold. */
  async #encode({ ids, featureIds, letterIds }) {
    const length = Math.max(ids.length, 1); // an empty source is read as one position of padding
    const inputs = {
      input_ids: int64([1, length], ids),
      attention_mask: int64([1, length], ids.map(() => 1)),
    };
    if (this.readsFeatures) inputs.feature_ids = int64([1, Math.max(featureIds.length, 1)], featureIds);
    if (this.readsLetters) inputs.letter_ids = int64([1, Math.max(letterIds.length, 1)], letterIds);
    const outputs = await this.encoder.run(inputs);
    const starting = (prefix) =>
      Object.fromEntries(Object.entries(outputs).filter(([name]) => name.startsWith(prefix)));
    return { memory: starting("memory."), state: starting("state."), forbidden: outputs.forbidden.data };
  }

  /**
   * Feeds the last words (B); returns log p and copy probabilities of the next words, (B, V + K) and (B, S), and the
   * next state.
   */
  async #step(words, memory, state, { signal }) {
    if (performance.now() - this.lastPause > MAX_BLOCKED_MS) {
      await new Promise((resolve) => setTimeout(resolve));
      this.lastPause = performance.now();
    }
    signal?.throwIfAborted();
    const outputs = await this.decoder.run({ words: int64([1, words.length], words), ...memory, ...state });
    const next = Object.keys(state).map((name) => [name, outputs[`next_${name}`]]);
    return {
      logProbs: rows(outputs.log_probs),
      copyProbs: this.copies ? rows(outputs.copy_probs) : [],
      state: Object.fromEntries(next),
    };
  }

  async #greedy(memory, state, forbidden, search) {
    const sequence = [this.tokenIds.decoder_start_token_id];
    const end = findEnd(search);
    while (sequence.length <= search.max_new_tokens) {
      const outputs = await this.#step(sequence.slice(-1), memory, state, search);
      const word = argmax(allowedScores(outputs.logProbs[0], forbidden, sequence.length - 1, search));
      sequence.push(word);
      if (endTokenIds(search).includes(word) || performance.now() > end) break;
      state = outputs.state;
    }
    return sequence;
  }

  /** Transformers' beam search and stopping rules: (R, 1 + T). */
  async #beams(memory, state, forbidden, search) {
    const { num_beams: beams, max_new_tokens: maxLength, length_penalty: penalty, early_stopping: early } = search;
    const ends = endTokenIds(search);
    const end = findEnd(search);
    const start = [this.tokenIds.decoder_start_token_id];
    const width = forbidden.length;
    // All beams start alike: only the first may be extended.
    let running = Array.from({ length: beams }, (_, beam) => ({ ids: start, score: beam ? LOWEST : 0 }));
    let done = running.map(() => ({ ids: start, score: LOWEST, isDone: false }));
    let improvable = true;
    state = selectOutputs(state, new Array(beams).fill(0));
    for (let length = 1; length <= maxLength && improvable; length += 1) {
      const outputs = await this.#step(running.map(({ ids }) => ids[length - 1]), memory, state, search);
      const isLast = length === maxLength || performance.now() > end;
      const totals = new Float32Array(beams * width);
      outputs.logProbs.forEach((logProbs, beam) => {
        const scores = allowedScores(logProbs, forbidden, length - 1, search);
        totals.set(scores.map((score) => score + running[beam].score), beam * width);
      });
      const candidates = topK(totals, Math.max(2, 1 + ends.length) * beams).map((index) => {
        const [parent, word] = [Math.floor(index / width), index % width];
        const stops = ends.includes(word) || isLast;
        return { ids: [...running[parent].ids, word], parent, stops, score: totals[index] };
      });

      const continuing = candidates.map(({ stops, score }) => Math.fround(stops ? score + LOWEST : score));
      const chosen = topK(continuing, beams);
      running = chosen.map((index) => ({ ids: candidates[index].ids, score: continuing[index] }));
      state = selectOutputs(outputs.state, chosen.map((index) => candidates[index].parent));

      const isFull = early === true && done.every(({ isDone }) => isDone);
      const ended = candidates.map(({ ids, stops, score }, index) => {
        const isDone = stops && index < beams; // the other candidates only replace beams that ended
        const normalised = Math.fround(score / Math.fround(length ** penalty));
        return { ids, score: isDone && !isFull ? normalised : Math.fround(normalised + LOWEST), isDone };
      });
      const all = [...done, ...ended];
      done = topK(all.map(({ score }) => score), beams).map((index) => all[index]);

      const byLongest = early === "never" && penalty > 0;
      const bestPossible = Math.fround(running[0].score / Math.fround((byLongest ? maxLength : length) ** penalty));
      const worst = Math.min(...done.map(({ score }) => score));
      improvable = done.some(({ isDone }) => bestPossible > (isDone ? worst : LOWEST));
      if (candidates.every(({ stops }) => stops) || (early === true && done.every(({ isDone }) => isDone))) break;
    }
    const returned = done.slice(0, search.num_return_sequences).map(({ ids }) => ids);
    const longest = Math.max(...returned.map((ids) => ids.length));
    // As in Transformers, a padding id of 0 counts as none.
    const padding = this.tokenIds.pad_token_id || (ends[0] ?? 0);
    return returned.map((ids) => [...ids, ...new Array(longest - ids.length).fill(padding)]);
  }
}

/** When a search that begins now ends, by the clock of `performance.now`. */
function findEnd({ max_time: seconds }) {
  return seconds === null ? Infinity : performance.now() + 1000 * seconds;
}

/** The probability that an output is right, as `calibrate` in model/confidence.py; without a calibration its score. */
function calibrate(score, calibration) {
  if (calibration === null) return score;
  const [slope, intercept] = calibration;
  const kept = Math.min(Math.max(score, 1e-300), 1 - 1e-6);
  return 1 / (1 + Math.exp(-slope * (Math.log(kept) - Math.log1p(-kept)) - intercept));
}

/**
 * The probability of each token that is no mark, times those of the marks before it; of the last one, also of those
 * after it.
 */
function scoreWords(tokens, probs, marks) {
  const scores = [];
  let factor = 1;
  tokens.forEach((token, at) => {
    factor *= probs[at];
    if (marks.has(token)) return;
    scores.push(factor);
    factor = 1;
  });
  if (scores.length) scores[scores.length - 1] *= factor;
  return scores;
}

/**
 * What was copied, from the words of an output with their spaces; copies that follow each other in both texts are one.
 */
function mergeSpans(words, spans, source) {
  const text = words.join("");
  const merged = [];
  let end = 0;
  words.forEach((word, at) => {
    const start = isBlank(word) ? end : end + countLeadingSpaces(word);
    end += word.length;
    const span = spans[at];
    if (!span) return;
    const last = merged[merged.length - 1] ?? [0, 0, 0, Infinity];
    const [gap, sourceGap] = [text.slice(last[1], start), source.slice(last[3], span[0])];
    const isNext = last[3] <= span[0] && (gap === "") === (sourceGap === "") && isBlank(gap) && isBlank(sourceGap);
    if (isNext) [last[1], last[3]] = [end, span[1]];
    else merged.push([start, end, ...span]);
  });
  return merged;
}

/** None, one or several. */
function endTokenIds({ eos_token_id: ends }) {
  return [ends].flat().filter((end) => end !== null);
}

/**
 * log p (V + K), -Infinity for forbidden words, and before `min_new_tokens` for end tokens, unless nothing else is
 * left, as for an empty source.
 */
function allowedScores(logProbs, forbidden, step, search) {
  const scores = logProbs.map((score, word) => (forbidden[word] ? -Infinity : score));
  const ends = endTokenIds(search);
  if (step < search.min_new_tokens && forbidden.some((isForbidden, word) => !isForbidden && !ends.includes(word))) {
    for (const end of ends) scores[end] = -Infinity;
  }
  return scores;
}

/** The index of the largest value, the first of equal ones. */
function argmax(values) {
  let best = 0;
  for (let index = 1; index < values.length; index += 1) if (values[index] > values[best]) best = index;
  return best;
}

/** The indices of the largest values in descending order; of equal values, the first one first. */
function topK(values, count) {
  const best = [];
  for (let index = 0; index < values.length; index += 1) {
    if (best.length === count && !(values[index] > values[best[count - 1]])) continue;
    let rank = best.length;
    while (rank && values[index] > values[best[rank - 1]]) rank -= 1;
    best.splice(rank, 0, index);
    if (best.length > count) best.pop();
  }
  return best;
}

// ---- tensors

/** The numbers, and zeros up to the size. */
function int64(shape, numbers) {
  const data = new BigInt64Array(shape.reduce((size, axis) => size * axis));
  numbers.forEach((number, index) => (data[index] = BigInt(number)));
  return new Tensor("int64", data, shape);
}

/** A tensor (1, B, M) as B arrays of M numbers. */
function rows({ data, dims: [, count, size] }) {
  return Array.from({ length: count }, (_, row) => data.subarray(row * size, (row + 1) * size));
}

/** The state (1, B, …) of the outputs with these indices, in their order. */
function selectOutputs(state, indices) {
  const selected = Object.entries(state).map(([name, { type, data, dims }]) => {
    const size = data.length / dims[1];
    const picked = new data.constructor(indices.length * size);
    indices.forEach((index, row) => picked.set(data.subarray(index * size, (index + 1) * size), row * size));
    return [name, new Tensor(type, picked, [1, indices.length, ...dims.slice(2)])];
  });
  return Object.fromEntries(selected);
}

function withoutNulls(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}
