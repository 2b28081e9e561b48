/**
 * Texts to the ids that the model reads, and ids to words and texts again: a port of `segmentation.py`, `source.py` and
 * `vocabularies.py` of the Python package copynet_hf, for one source at a time.
 *
 * Strings are read by code points, as in Python. `SEGMENTERS` is described in `segmentation.py`, extended ids in
 * `source.py`. Shapes: S source positions, F features, L letters, V words, K slots.
 */

/**
 * @typedef {object} Source a source as the model reads it
 * @property {string[]} words (S) its words, truncated to the model's maximum length
 * @property {string[]} spacedWords (S) each with the space that precedes it
 * @property {string} text as it was passed in
 * @property {([number, number] | null)[]} spans (S) start and end of each word in the text, in the units of JavaScript's
 *     strings (UTF-16), not in characters as in Python; null for marks
 * @property {boolean[]} oov (S) whether the word is out-of-vocabulary and owns a slot
 * @property {number[]} ids (S) their ids; an out-of-vocabulary word has the id V + k of its slot k, or that of `<unk>`
 * @property {string[]} oovWords the words that own slots, at most K
 * @property {number[]} featureIds (F)
 * @property {number[]} letterIds (L) the letters of the words that own slots, each word after a boundary
 * @property {boolean} isTruncated
 */

// ---- segmenters

// Python's \s and \w, which differ from JavaScript's.
const S = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const W = "\\p{L}\\p{N}_";
const SPACES = new RegExp(`[${S}]+`, "u");
const IS_SPACE = new RegExp(`^[${S}]+$`, "u");
/** All whitespace but single spaces within a text. */
const WHITESPACE = new RegExp(`^[${S}]+|(?<![${S}])(?! [^${S}])[${S}]+`, "gu");
const MAX_PART = 64;
const LEADING_SPACE = new RegExp(`^[${S}]*`, "u");

const JOINER = "\uffed";
const ESCAPED_JOINER = `[${JOINER}]`;
// A zero-width joiner or non-joiner belongs to the word that it is in.
const WORD = `[${W}]+(?:(?:\\p{M}|[\\u200c\\u200d](?=[${W}\\p{M}]))[${W}]*)*`;
// Spaces without a group are those that joining restores.
const PIECES = new RegExp(
  [
    `(?<word>${WORD})(?: (?=[^${S}]))?`,
    `(?<space>([${S}])\\3*)`,
    // An optional group never matches the empty string in JavaScript, hence the empty alternative.
    `(?<punctuation>[^${W}${S}])(?:(?<right>(?=[${W}]))| (?=[${W}])|)`,
  ].join("|"),
  "gu",
);
/** Marks for the part of the word that follows, as the arguments of `slice`. */
const CUTS = new Map([
  ["[initial]", [0, 1]],
  ["[second]", [1, 2]],
  ...[3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map((number) => [`[first_${number}]`, [0, number]]),
  ["[drop_first]", [1]],
  ["[drop_last]", [0, -1]],
]);
// As in segmentation.py, letters that are written by others where there are no accents.
const PLAIN = new Map(Object.entries({ ł: "l", đ: "d", ð: "d", ø: "o", ı: "i", ħ: "h", ß: "ss", æ: "ae", œ: "oe", þ: "th" }));
const DIGRAPHS = new Map([...PLAIN, ...Object.entries({ ä: "ae", ö: "oe", ü: "ue", å: "aa", ø: "oe" })]);
/** Marks for what is written of the word that follows. */
const CHANGES = new Map([
  ...Array.from(CUTS, ([mark, part]) => [mark, (word) => Array.from(word).slice(...part).join("")]),
  ["[plain]", (word) => replaceLetters(word, PLAIN)],
  ["[digraphs]", (word) => replaceLetters(word, DIGRAPHS)],
  ["[lower_plain]", (word) => replaceLetters(word, PLAIN).toLowerCase()],
  ["[lower_digraphs]", (word) => replaceLetters(word, DIGRAPHS).toLowerCase()],
  ["[lower]", (word) => word.toLowerCase()],
  ["[upper]", (word) => word.toUpperCase()],
  ["[title]", capitalize],
  ["[lower_tr]", lowerTurkish],
  ["[upper_tr]", upperTurkish],
  ["[title_tr]", ([first = "", ...others]) => upperTurkish(first) + lowerTurkish(others.join(""))],
]);
// Letters whose capital at the start of a word is neither their lower nor their upper case, by the former.
const TITLES = new Map(Array.from("ǅǈǋǲᾈᾉᾊᾋᾌᾍᾎᾏᾘᾙᾚᾛᾜᾝᾞᾟᾨᾩᾪᾫᾬᾭᾮᾯᾼῌῼ", (c) => [c.toLowerCase(), c]));
TITLES.set("ŉ", "ʼN");
const DIGIT = /^\p{Nd}$/u;
const CODE = /^(?=[a-f]*\d)(?=\d*[a-f])[\da-f]{6,}$/i;
const STARTS_WORD = new RegExp(`^[${W}]`, "u");
/** A character of words that touches what is before it; an underscore, also what is after it. */
const GLUED_LETTER = new RegExp(`^(?:${JOINER}[${W}\\p{M}]|${JOINER}?_${JOINER})$`, "u");
const PUNCTUATION = new RegExp(`^(${JOINER}?)(\\[${JOINER}\\]|[^${W}${S}${JOINER}])(${JOINER}?)$`, "u");

/** The word with these letters replaced, and without accents. */
function replaceLetters(word, letters) {
  if (/^[\0-\x7f]*$/.test(word)) return word;
  return mapLetters(mapLetters(word, letters).normalize("NFD").replace(/\p{Mn}/gu, ""), letters);
}

function lowerTurkish(word) {
  return word.replaceAll("I\u0307", "i").replaceAll("I", "ı").replaceAll("İ", "i").toLowerCase();
}

function upperTurkish(word) {
  return word.replaceAll("i", "İ").toUpperCase();
}

function mapLetters(word, letters) {
  const written = Array.from(word.normalize("NFC"), (letter) => {
    const lower = letters.get(letter.toLowerCase());
    return letters.get(letter) ?? (lower === undefined ? letter : capitalize(lower));
  });
  return written.join("");
}

/**
 * As Python's `str.capitalize`: "ß" becomes "Ss", and a capital sigma at the end "ς". The iota below a Greek vowel
 * stays below its capital, where `toUpperCase` puts it beside.
 */
function capitalize(word) {
  const [first = ""] = word;
  const [initial = "", ...others] = /[\u10d0-\u10ff]/u.test(first) ? first : first.toUpperCase();
  const capital = TITLES.get(first.toLowerCase()) ?? initial + others.join("").toLowerCase().replace("ι", "\u0345");
  return capital + word.toLowerCase().slice(first.toLowerCase().length);
}

function splitWordPunct(text) {
  const words = [];
  let endOfWord = -1;
  for (const { index, groups = {} } of text.matchAll(PIECES)) {
    if (groups.word !== undefined) {
      words.push(groups.word);
      endOfWord = index + groups.word.length;
    } else if (groups.space !== undefined) {
      words.push(groups.space);
    } else {
      const token = groups.punctuation === JOINER ? ESCAPED_JOINER : groups.punctuation;
      words.push((index === endOfWord ? JOINER : "") + token + (groups.right === "" ? JOINER : ""));
    }
  }
  return words;
}

function splitWordParts(text, digits, wholeCodes) {
  const tokens = [];
  for (const word of splitWordPunct(text)) {
    const isCut = STARTS_WORD.test(word) && !(wholeCodes && CODE.test(word));
    const parts = isCut ? cut(word, digits) : [word];
    if (digits && DIGIT.test(tokens.at(-1) ?? "") && /^\p{Nd}/u.test(parts[0])) tokens.push(" ");
    for (const part of parts) tokens.push(part); // not push(...parts), which fails for a hundred thousand
  }
  return tokens;
}

/** The parts of a word, with the marks that join them; with `digits`, every digit is a part. */
function cut(word, digits) {
  const characters = Array.from(word);
  const parts = [];
  let before = "";
  characters.forEach((character, position) => {
    const kind = findKind(character);
    const isStart =
      before === "upper" && kind === "upper" // WWWord: the last one begins a part
        ? findKind(characters[position + 1] ?? "") === "lower"
        : kind === "_" || (kind !== "" && kind !== before && !(before === "upper" && kind === "lower"));
    if (isStart || position === 0 || (digits && kind === "digit")) parts.push(character);
    else parts[parts.length - 1] += character;
    before = kind || before;
  });
  return parts.flatMap((part, number) => {
    if (part === "_") return [(number ? JOINER : "") + part + (number + 1 < parts.length ? JOINER : "")];
    const touches = number && digits && DIGIT.test(parts[number - 1]) && DIGIT.test(part);
    return !number || touches || parts[number - 1] === "_" ? [part] : [JOINER, part];
  });
}

/** What a character of words is; "" for a mark, which belongs to what it follows. */
function findKind(character) {
  if (character === "_") return "_";
  if (!/^[\p{L}\p{N}]$/u.test(character)) return "";
  if (character.toLowerCase() !== character) return "upper";
  if (character.toUpperCase() !== character) return "lower";
  return DIGIT.test(character) ? "digit" : "other";
}

/** For each token that is no mark, the marks before it that change it, in the order in which they do. */
export function listChanges(tokens, marks) {
  const changes = [];
  let ofNext = [];
  for (const token of tokens) {
    if (!marks.has(token)) changes.push(ofNext);
    ofNext = marks.has(token) && token !== JOINER ? [token, ...ofNext] : [];
  }
  return changes;
}

/** What the cuts among changes, made one after the other, leave of a span of the text; null: nothing. */
export function cutSpan(text, [start, end], changes) {
  if (!changes.some((mark) => CUTS.has(mark))) return [start, end];
  let word = text.slice(start, end);
  /** The span of each letter. */
  let left = Array.from(word, (letter) => [start, (start += letter.length)]);
  for (const mark of changes) {
    const [change, letters] = [CHANGES.get(mark), Array.from(word)];
    const count = (length) => Array.from(change(letters.slice(0, length).join(""))).length;
    // One letter may become two, or an accent none.
    if (CUTS.has(mark)) left = left.slice(...CUTS.get(mark));
    else left = left.flatMap((place, at) => Array(count(at + 1) - count(at)).fill(place));
    word = change(word);
  }
  return left.length ? [left[0][0], left[left.length - 1][1]] : null;
}

/** Each word with the space that precedes it; with `digits`, digits touch digits. */
function spaceWordPunct(words, digits = false) {
  let afterWord = false; // the last piece is a word
  let afterDigit = false;
  let glued = true; // a word follows the last piece without a space
  let changes = []; // of the next word, the last one first
  return words.map((word) => {
    const change = CHANGES.get(word);
    if (change) {
      changes.unshift(change);
      return "";
    }
    const own = changes;
    changes = [];
    const touches = digits && afterDigit;
    afterDigit = DIGIT.test(word);
    const changed = (text) => own.reduce((found, each) => each(found), text);
    if (word === JOINER) {
      [afterWord, glued] = [false, true];
      return "";
    }
    if (IS_SPACE.test(word)) {
      [afterWord, glued] = [false, true];
      return changed(word);
    }
    if (GLUED_LETTER.test(word)) {
      const space = glued || word.startsWith(JOINER) ? "" : " ";
      [afterWord, glued] = [true, word.endsWith(JOINER)];
      return space + changed(word.replaceAll(JOINER, ""));
    }
    const match = PUNCTUATION.exec(word);
    if (!match) {
      const piece = (glued || (touches && afterDigit) ? "" : " ") + changed(word);
      [afterWord, glued] = [true, false];
      return piece;
    }
    const [, left, token, right] = match;
    const piece = (afterWord && !left ? " " : "") + changed(token === ESCAPED_JOINER ? JOINER : token);
    [afterWord, glued] = [false, right !== ""];
    return piece;
  });
}

/** With `digits`, every digit is a word; with `wholeCodes`, codes are not cut. */
function segmenterOfParts(digits, wholeCodes) {
  return {
    split: (text) => splitWordParts(text, digits, wholeCodes),
    space: (words) => spaceWordPunct(words, digits),
  };
}

/** `split` splits a text into words; `space` gives each of any words with the space that precedes it in their text. */
export const SEGMENTERS = {
  char: { split: (text) => Array.from(text), space: (words) => words },
  whitespace: {
    split: (text) => text.split(SPACES).filter((word) => word !== ""),
    space: (words) => words.map((word, position) => (position ? ` ${word}` : word)),
  },
  word_punct: { split: splitWordPunct, space: (words) => spaceWordPunct(words) },
  word_parts: segmenterOfParts(false, false),
  word_digits: segmenterOfParts(true, false),
  code_parts: segmenterOfParts(false, true),
  code_digits: segmenterOfParts(true, true),
};

/** What Python's classes of characters hold, and others do not. */
const CLASSES = new Map([["\\d", "\\p{Nd}"], ["\\w", W], ["\\s", S]]);

/** Python's places between characters. */
const PLACES = new Map([
  ["\\b", `(?:(?<=[${W}])(?![${W}])|(?<![${W}])(?=[${W}]))`],
  ["\\B", `(?:(?<=[${W}])(?=[${W}])|(?<![${W}])(?![${W}]))`],
  ["\\A", "^"],
  ["\\Z", "$"],
]);

/**
 * A regular expression of Python as one of JavaScript, whose \d, \w, \s and \b are those of all scripts. What JavaScript
 * does not know, such as (?i), is an error, and so are \D, \W and \S in brackets.
 */
function compilePattern(pattern) {
  let isInBrackets = false;
  const source = pattern.replace(/\\.|[[\]]/gsu, (token) => {
    if (token === "[" || token === "]") {
      isInBrackets = token === "[";
      return token;
    }
    if (!isInBrackets && PLACES.has(token)) return PLACES.get(token);
    if (/^\\[-"#%&',:;<=>@_`~! ]$/.test(token) && !(isInBrackets && token === "\\-")) return token[1];
    const characters = CLASSES.get(token.toLowerCase());
    if (characters === undefined) return token;
    if (isInBrackets && token === token.toLowerCase()) return characters;
    if (isInBrackets) throw new SyntaxError(`${token} in brackets is not supported`);
    return `[${token === token.toLowerCase() ? "" : "^"}${characters}]`;
  });
  return new RegExp(source, "u");
}

// ---- words and ids

/** A segmenter, a vocabulary of words, and slots for the out-of-vocabulary words of a source. */
export class Tokenizer {
  /** vocabulary: the contents of vocabulary.json, which `copynet-hf export --target web` writes. */
  constructor(vocabulary) {
    this.segmenter = SEGMENTERS[vocabulary.segmenter];
    /** Tokens that are no part of a text themselves. */
    this.marks = new Set(vocabulary.marks);
    this.words = vocabulary.words;
    this.ids = new Map(this.words.map((word, index) => [word, index]));
    /** Words that count as out-of-vocabulary although the vocabulary has them: spelled-out special tokens. */
    this.specialWords = new Set(vocabulary.special_words);
    /** The ids that are left out of outputs: special tokens other than `<unk>`. */
    this.skippedIds = new Set(vocabulary.skipped_ids);
    this.unkTokenId = vocabulary.unk_token_id;
    this.maxSourceOov = vocabulary.max_source_oov;
    this.maxLength = vocabulary.max_length ?? Infinity;
    this.truncationSide = vocabulary.truncation_side;
    this.foldsWhitespace = vocabulary.fold_whitespace ?? false;
    /** What separates features where they are typed. */
    this.featuresSeparator = vocabulary.features_separator;
    this.featureIds = new Map(Object.entries(vocabulary.feature_ids));
    this.unknownFeatureId = vocabulary.unknown_feature_id;
    this.matching = new Map();
    this.letterIds = new Map(Object.entries(vocabulary.letter_ids));
    this.letters = vocabulary.letters;
    const words = [...this.words.entries()].filter(([, word]) => !this.specialWords.has(word));
    /** By its spelling in lower case, the id of each word, of `us` and `US` the lower one. */
    this.variants = new Map(words.reverse().map(([index, word]) => [word.toLowerCase(), index]));
  }

  /**
   * The words and ids of a source. An out-of-vocabulary word has the id V + k, where k counts such words in order of
   * first appearance.
   */
  encode(text, features = []) {
    const all = this.segmenter.split(this.foldsWhitespace ? this.fold(text) : text);
    const isTruncated = all.length > this.maxLength;
    const start = isTruncated && this.truncationSide === "left" ? all.length - this.maxLength : 0;
    const end = Math.min(all.length, start + this.maxLength);
    const words = all.slice(start, end);
    const spans = findSpans(text, all.map((word) => this.showWord(word))).slice(start, end);
    const first = this.words.length;
    const slots = new Map();
    const ids = words.map((word) => {
      const id = this.specialWords.has(word) ? undefined : this.ids.get(word);
      if (id === undefined && !slots.has(word)) {
        slots.set(word, slots.size < this.maxSourceOov ? first + slots.size : this.unkTokenId);
      }
      return id ?? slots.get(word);
    });
    const oovWords = [...slots.keys()].slice(0, this.maxSourceOov);
    const featureIds = this.findFeatureIds(features);
    const oov = ids.map((id) => id >= first);
    const letterIds = this.letterIds.size ? oovWords.flatMap((word) => this.findLetterIds(word)) : [];
    const spacedWords = this.addSpaces(words);
    return { text, words, spans, spacedWords, oov, ids, oovWords, featureIds, letterIds, isTruncated };
  }

  /** The ids of features, each once. */
  findFeatureIds(features) {
    if (!Array.isArray(features) || !features.every((feature) => typeof feature === "string")) {
      throw new TypeError(`features is ${JSON.stringify(features)}: pass a list of strings.`);
    }
    const separator = this.featuresSeparator;
    for (const feature of features) {
      if (this.featureIds.has(feature) || !feature.includes(separator)) continue;
      const parts = feature.split(separator).map((part) => part.trim()).filter(Boolean);
      if (parts.length && parts.every((part) => this.featureIds.has(part))) {
        throw new TypeError(`features has "${feature}": pass one string for each feature, ${JSON.stringify(parts)}.`);
      }
    }
    return [...new Set(features)].map((feature) => this.featureIds.get(feature) ?? this.unknownFeatureId);
  }

  /**
   * A text with only the whitespace that the vocabulary has. In place of other whitespace stands what the vocabulary has
   * of it; if that is nothing, a space, or nothing at both ends of the text.
   */
  fold(text) {
    return text.replace(WHITESPACE, (whitespace, start) => {
      let known = whitespace;
      let words = this.segmenter.split(known);
      while (!words.every((word) => this.ids.has(word))) {
        known = words.map((word) => this.findKnown(word)).join("");
        words = this.segmenter.split(known);
      }
      if (known === whitespace || /[^ ]/.test(known)) return known;
      if (start === 0 || start + whitespace.length === text.length) return "";
      return known && whitespace.includes(known) ? known : " ";
    });
  }

  /** The longest part of a word, from its start, that the vocabulary has. */
  findKnown(word) {
    if (this.ids.has(word)) return word;
    let length = Math.min(word.length - 1, MAX_PART);
    while (length > 0 && !this.ids.has(word.slice(0, length))) length -= 1;
    return word.slice(0, Math.max(length, 0));
  }

  /** A word as it is in a text, without marks. */
  showWord(word) {
    return this.segmenter.space([word]).join("");
  }

  /**
   * The ids of the words in which a regular expression finds something; neither marks nor special tokens match, except
   * for the unknown word.
   */
  matchingIds(pattern) {
    let found = this.matching.get(pattern);
    if (!found) {
      const expression = compilePattern(pattern);
      const shown = this.words.map((word, id) => ({ id, word: this.skippedIds.has(id) ? "" : this.showWord(word) }));
      found = shown.filter(({ word }) => word !== "" && expression.test(word)).map(({ id }) => id);
      this.matching.set(pattern, found);
    }
    return found;
  }

  /**
   * The letters of a word after a boundary; of a long word, the first and the last ones. Where the vocabulary has the
   * word in another case, its id precedes them, counted from `first_variant` on.
   */
  findLetterIds(word) {
    const all = Array.from(word);
    const half = this.letters.most_of_word / 2;
    const letters = all.length > 2 * half ? [...all.slice(0, half), ...all.slice(-half)] : all;
    const { boundary_id: boundary, unknown_id: unknown, first_variant: first } = this.letters;
    const variant = this.variants.get(word.toLowerCase());
    const variants = first === null || variant === undefined ? [] : [first + variant];
    return [boundary, ...variants, ...letters.map((letter) => this.letterIds.get(letter) ?? unknown)];
  }

  /** Whether there is no word, or only spaces. */
  isBlank({ words }) {
    return words.every((word) => IS_SPACE.test(word));
  }

  /** The words of an output, without special tokens other than `<unk>`. Extended ids are looked up in the source. */
  decodeWords(ids, source) {
    const kept = ids.filter((id) => !this.skippedIds.has(id));
    return kept.map((id) => this.words[id] ?? source.oovWords[id - this.words.length] ?? this.words[this.unkTokenId]);
  }

  /** Each word with the space that precedes it in the text; concatenated, they are the text without outer spaces. */
  addSpaces(words) {
    const pieces = this.segmenter.space(words);
    const text = pieces.join("");
    const start = LEADING_SPACE.exec(text)?.[0].length ?? 0;
    const end = Math.max(start, trimmedLength(text));
    let offset = 0;
    return pieces.map((piece) => {
      const from = Math.min(Math.max(offset, start), end);
      offset += piece.length;
      return text.slice(from, Math.min(Math.max(offset, start), end));
    });
  }
}

/** Where each of all words of the text is, in their order; null for an empty one. */
function findSpans(text, words) {
  let end = 0;
  return words.map((word) => {
    if (word === "") return null;
    const [start, stop] = IS_SPACE.test(word) ? findSpace(text, word, end) : [text.indexOf(word, end)];
    end = stop ?? start + word.length;
    return [start, end];
  });
}

/** Where a word of whitespace is that follows this place: if the text has other whitespace there, all of that. */
function findSpace(text, word, start) {
  if (text.startsWith(word, start)) return [start, start + word.length];
  let end = start;
  while (end < text.length && IS_SPACE.test(text[end])) end += 1;
  const found = text.slice(start, end).indexOf(word);
  return found < 0 ? [start, end] : [start + found, start + found + word.length];
}

/** Whether there is nothing but spaces. */
export const isBlank = (text) => text === "" || IS_SPACE.test(text);

/** The number of spaces at the start. */
export const countLeadingSpaces = (text) => LEADING_SPACE.exec(text)?.[0].length ?? 0;

/** The length without spaces at the end. A loop, because a regular expression would take quadratic time. */
function trimmedLength(text) {
  let length = text.length;
  while (length && IS_SPACE.test(text[length - 1])) length -= 1;
  return length;
}
