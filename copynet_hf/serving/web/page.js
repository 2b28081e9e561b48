/** The page: reads the form, runs the model, and shows where each word of the output came from. */

import { CopyNet } from "./copynet.js";

const MAX_BEAMS = 10;
const MAX_WORDS = 512;
const MAX_SECONDS = 20; // of a search
const MAX_COLUMNS = 60; // of the heatmap
const MAX_ROWS = 256;
const MAX_LABEL = 100; // characters of a word in the line that states its origin
const SEPARATOR = ";"; // of features
const HINT = "Point at a word, or press Tab, to see where it came from.";

/** @typedef {import("./copynet.js").Prediction} Prediction */

/** @param {string} id @returns {any} */
const find = (id) => document.getElementById(id);

/**
 * @param {string} message
 * @param {boolean} isError
 */
function report(message, isError = false) {
  find("status").textContent = message;
  find("status").classList.toggle("error", isError);
}

/** Loads the model and what `copynet-hf export` wrote about the page, and enables the form. */
async function start() {
  const page = await (await fetch("page.json")).json();
  document.title = find("title").textContent = page.title;
  const model = await CopyNet.fromPretrained("./model/");
  const saved = { ...CopyNet.defaults, ...model.generationConfig };
  find("beams").value = saved.num_beams;
  find("beams").max = Math.max(saved.num_beams, MAX_BEAMS);
  find("words").value = saved.max_new_tokens;
  find("words").max = Math.max(saved.max_new_tokens, MAX_WORDS);
  find("forbid-unk").checked = saved.forbid_unk;
  find("features-field").hidden = !model.readsFeatures;
  find("heatmap").hidden = !model.copies;

  find("form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    generate(model);
  });
  find("text").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("form").requestSubmit();
  });
  for (const text of page.examples) {
    const button = add(find("examples"), "button", text);
    button.setAttribute("type", "button");
    button.addEventListener("click", () => {
      find("text").value = text;
      find("form").requestSubmit();
    });
  }
  find("examples").hidden = page.examples.length === 0;
  find("generate").disabled = false;
  report("Ready.");
}

/** @param {CopyNet} model */
async function generate(model) {
  const text = find("text").value;
  const button = find("generate");
  if (button.disabled) return;
  if (!text.trim()) {
    report("The text is empty: type one and press Generate.", true);
    return;
  }
  button.disabled = true;
  report("Generating …");
  try {
    const started = performance.now();
    const [output] = await model.predict(text, {
      num_beams: find("beams").valueAsNumber,
      num_return_sequences: 1,
      max_new_tokens: find("words").valueAsNumber,
      forbid_unk: find("forbid-unk").checked,
      features: find("features").value.split(SEPARATOR).map(trim).filter(Boolean),
      signal: AbortSignal.timeout(MAX_SECONDS * 1000),
    });
    const milliseconds = Math.round(performance.now() - started);
    show(model, output);
    const truncated = output.source.isTruncated ? ` The model read only ${output.source.words.length} words.` : "";
    report(`Generated in ${milliseconds} ms.${truncated}`);
  } catch (error) {
    const isTimeout = error instanceof DOMException && error.name === "TimeoutError";
    report(isTimeout ? `The search took more than ${MAX_SECONDS} seconds: give a shorter text.` : String(error), true);
  } finally {
    button.disabled = false;
  }
}

/** @param {string} text */
const trim = (text) => text.trim();

/**
 * Shows source and output, whose words highlight each other, and the heatmap.
 *
 * @param {CopyNet} model
 * @param {Prediction} output
 */
function show(model, output) {
  const oov = new Set(output.source.oovWords);
  const sourceWords = model.tokenizer.addSpaces(output.source.words);
  const positions = output.sourcePositions.map((position, step) => (output.copied[step] ? position : null));
  const [source, target] = [find("source"), find("output")];
  for (const line of [source, target]) {
    line.replaceChildren();
    line.lang = guessLanguage(sourceWords.join(""));
  }
  const sourceSpans = sourceWords.map((word, position) => {
    const span = addWord(source, word, oov.has(output.source.words[position]));
    span.dataset.at = String(position);
    span.dataset.origin = `${shorten(word.trim(), MAX_LABEL)}: position ${position}`;
    return span;
  });
  const targetSpans = output.words.map((word, step) => {
    const span = addWord(target, word, output.ids[step] >= model.tokenizer.words.length);
    const position = positions[step];
    let origin = "generated";
    if (position !== null) {
      span.classList.add("copied");
      span.dataset.from = String(position);
      const probability = output.copyProbs[step][position].toFixed(2);
      origin = `copied from position ${position} with probability ${probability}`;
    }
    span.tabIndex = 0;
    span.setAttribute("role", "note");
    span.dataset.origin = `${shorten(word.trim(), MAX_LABEL)}: ${origin}`;
    span.setAttribute("aria-label", span.dataset.origin);
    return span;
  });
  linkWords(sourceSpans, targetSpans, positions);
  find("result").hidden = false;
  const table = find("heatmap").querySelector("table");
  table.replaceChildren();
  if (model.copies) fillHeatmap(table, sourceWords, output);
}

/**
 * Highlights the source position of a word that the pointer or the focus is on, and the copies of a source word.
 *
 * @param {HTMLElement[]} source
 * @param {HTMLElement[]} target
 * @param {(number | null)[]} positions of each target word; null: not copied
 */
function linkWords(source, target, positions) {
  const links = target.flatMap((span, step) => {
    const position = positions[step];
    return position === null ? [] : [[source[position], span]];
  });
  const all = [...source, ...target];
  /** @param {HTMLElement | null} word */
  const mark = (word) => {
    const pairs = links.filter((pair) => word && pair.includes(word));
    for (const span of all) {
      span.classList.toggle("linked", span !== word && pairs.some((pair) => pair.includes(span)));
    }
    find("origin").textContent = word?.dataset.origin ?? HINT;
  };
  const focused = () => target.find((span) => span === document.activeElement) ?? null;
  for (const span of all) {
    span.addEventListener("pointerenter", () => mark(span));
    span.addEventListener("pointerleave", () => mark(focused()));
    span.addEventListener("focus", () => mark(span));
    span.addEventListener("blur", () => mark(null));
  }
  mark(null);
}

/**
 * The probability of copying from each position; of a long source, the positions that were copied from and the
 * likeliest others.
 *
 * @param {HTMLTableElement} table
 * @param {string[]} sourceWords
 * @param {Prediction} output
 */
function fillHeatmap(table, sourceWords, output) {
  const copyProbs = output.copyProbs.slice(0, MAX_ROWS);
  const used = new Set(output.sourcePositions);
  const weights = sourceWords.map((_, position) => {
    return copyProbs.reduce((best, probs) => Math.max(best, probs[position]), used.has(position) ? 1 : 0);
  });
  const byWeight = [...weights.keys()].sort((left, right) => weights[right] - weights[left]);
  const columns = byWeight.slice(0, MAX_COLUMNS).sort((left, right) => left - right);
  const head = add(add(table, "thead"), "tr");
  add(head, "td");
  for (const column of columns) addHeading(head, "col", sourceWords[column]);
  const body = add(table, "tbody");
  copyProbs.forEach((probs, step) => {
    const row = add(body, "tr");
    addHeading(row, "row", output.words[step]);
    for (const column of columns) {
      const cell = add(row, "td");
      cell.title = `${output.words[step].trim()} from ${sourceWords[column].trim()}: ${probs[column].toFixed(2)}`;
      cell.setAttribute("aria-label", probs[column].toFixed(2));
      add(cell, "div").style.opacity = String(probs[column]);
    }
  });
}

/** @param {HTMLElement} row @param {"row" | "col"} scope @param {string} word */
function addHeading(row, scope, word) {
  const heading = add(row, "th");
  heading.setAttribute("scope", scope);
  add(heading, "span", word.trim());
}

/** Adds the word behind its leading space. @param {HTMLElement} parent @param {string} word @param {boolean} isOov */
function addWord(parent, word, isOov) {
  const text = word.trimStart() || word;
  parent.append(word.slice(0, word.length - text.length));
  const span = add(parent, "span", text);
  span.classList.toggle("oov", isOov);
  return span;
}

/**
 * @param {HTMLElement} parent
 * @param {string} name
 * @param {string} text
 * @returns {HTMLElement}
 */
function add(parent, name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** The language by which browsers choose between the Chinese and the Japanese forms of characters. @param {string} text */
const guessLanguage = (text) => (/[\u3040-\u30ff]/.test(text) ? "ja" : /[\u4e00-\u9fff]/.test(text) ? "zh" : "");

/** @param {string} text @param {number} length */
const shorten = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);

start().catch((error) => report(`The model cannot be loaded: ${error.message}`, true));
