/**
 * The page: reads the form, and shows where each word of the output came from. The model runs in the browser,
 * `CopyNet` of copynet.js, or on the server, `RemoteCopyNet` of remote.js.
 */

const MAX_BEAMS = 10;
const MAX_WORDS = 512;
const MAX_SECONDS = 20; // of a search
const MAX_COLUMNS = 60; // of the heatmap
const MAX_ROWS = 256;
const MAX_LABEL = 100; // characters of a word in the line that states its origin
const HAS_KEYBOARD = matchMedia("(hover: hover) and (pointer: fine)").matches;
const HINT = `${HAS_KEYBOARD ? "Point at a word, or press Tab," : "Tap a word"} to see where it came from.`;

const find = (id) => document.getElementById(id);

function report(message, isError = false) {
  find("status").textContent = message;
  find("status").classList.toggle("error", isError);
}

/** The model of the folder, or of the server if that describes it. */
async function loadModel(page) {
  if (page.model) return new (await import("./remote.js")).RemoteCopyNet(page.model);
  return (await import("./copynet.js")).CopyNet.fromPretrained("./model/");
}

/** Loads the model, enables the form, and shows the output for the first example. */
async function start() {
  const page = await (await fetch("page.json")).json();
  document.title = find("title").textContent = page.title;
  find("privacy").hidden = Boolean(page.model);
  const model = await loadModel(page);
  const saved = model.generationConfig;
  find("beams").value = saved.num_beams;
  find("beams").max = Math.max(saved.num_beams, MAX_BEAMS);
  find("words").value = saved.max_new_tokens;
  find("words").max = Math.max(saved.max_new_tokens, MAX_WORDS);
  find("forbid-unk").checked = saved.forbid_unk;
  find("facts-field").hidden = !model.readsFacts;
  find("features-field").hidden = !model.readsFeatures;
  find("separator").textContent = model.featuresSeparator;
  find("copied-only-field").hidden = model.copiedOnly === "";
  find("copied-only").value = model.copiedOnly ?? "";
  find("copied-only").readOnly = model.copiedOnly !== null;
  for (const name of ["copies", "legend", "heatmap"]) find(name).hidden = !model.copies;

  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    generate(model);
  });
  find("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("form").requestSubmit();
  });
  find("copy").addEventListener("click", copyOutput);
  find("copy").hidden = !navigator.clipboard; // which pages from other machines have over HTTPS only
  const buttons = page.examples.map((text) => {
    const button = add(find("examples"), "button", text);
    button.setAttribute("type", "button");
    button.addEventListener("click", () => {
      find("text").value = text;
      find("form").requestSubmit();
    });
    return button;
  });
  find("examples").hidden = buttons.length === 0;
  find("generate").disabled = false;
  report("Ready.");
  buttons[0]?.click();
}

/** Puts the output on the clipboard. */
async function copyOutput() {
  await navigator.clipboard.writeText(find("output").textContent);
  report("The output is on the clipboard.");
}

async function generate(model) {
  const text = find("text").value;
  const button = find("generate");
  if (button.disabled) return;
  if (!text.trim()) {
    fail("The text is empty: type one and press Generate.");
    return;
  }
  button.disabled = true;
  report("Generating …");
  try {
    const facts = model.readsFacts ? parseFacts(find("facts").value) : [];
    const started = performance.now();
    const [output] = await model.predict(text, {
      num_beams: find("beams").valueAsNumber,
      num_return_sequences: 1,
      max_new_tokens: find("words").valueAsNumber,
      forbid_unk: find("forbid-unk").checked,
      ...(model.readsFacts ? { facts } : {}),
      ...(model.copiedOnly === null ? { copied_only: find("copied-only").value } : {}),
      ...(model.readsFeatures ? { features: parseFeatures(model) } : {}),
      signal: AbortSignal.timeout(MAX_SECONDS * 1000),
    });
    const milliseconds = Math.round(performance.now() - started);
    show(model, output);
    const truncated = output.isTruncated ? " The model read only a part of the text." : "";
    const cut = output.isCut ? " The output ended before it was complete." : "";
    const confidence = output.confidence === null ? "" : ` with confidence ${output.confidence.toFixed(2)}`;
    report(`Generated in ${milliseconds} ms${confidence}.${truncated}${cut}`);
  } catch (error) {
    const isTimeout = error instanceof DOMException && error.name === "TimeoutError";
    const { message } = error;
    fail(isTimeout ? `The search took more than ${MAX_SECONDS} seconds: use a shorter text.` : message);
  } finally {
    button.disabled = false;
  }
}

/** Says why there is no output, and hides that of an earlier text. */
function fail(message) {
  report(message, true);
  find("result").hidden = true;
}

const trim = (text) => text.trim();

const parseFeatures = (model) => find("features").value.split(model.featuresSeparator).map(trim).filter(Boolean);

/** Triples from lines of the form "subject | property | object"; empty lines are skipped. */
function parseFacts(lines) {
  const facts = lines.split("\n").filter(trim).map((line) => line.split("|").map(trim));
  const wrong = facts.find((fact) => fact.length !== 3 || !fact.every(Boolean));
  if (wrong) throw new Error(`"${wrong.join(" | ")}" is not a fact: write subject | property | object on each line.`);
  return facts;
}

/** Shows source and output, whose words highlight each other, and the heatmap. */
function show(model, output) {
  const sourceWords = output.source.spacedWords;
  const positions = output.sourcePositions.map((position, step) => (output.copied[step] ? position : null));
  const [source, target] = [find("source"), find("output")];
  for (const line of [source, target]) {
    line.replaceChildren();
    line.lang = guessLanguage(sourceWords.join(""));
  }
  const sourceSpans = sourceWords.map((word, position) => {
    const span = addWord(source, word, output.source.oov[position]);
    span.dataset.at = String(position);
    span.dataset.origin = `${shorten(word.trim(), MAX_LABEL)}: word ${position + 1} of the source`;
    return span;
  });
  const targetSpans = output.words.map((word, step) => {
    const span = addWord(target, word, output.oov[step]);
    const position = positions[step];
    let origin = "generated";
    if (position !== null) {
      span.classList.add("copied");
      span.dataset.from = String(position);
      const probability = output.copyProbs[step][position].toFixed(2);
      origin = `copied from word ${position + 1} of the source with probability ${probability}`;
    }
    if (output.wordScores) origin += `; probability of the word ${output.wordScores[step].toFixed(2)}`;
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
 * positions: of each target word; null: not copied.
 */
function linkWords(source, target, positions) {
  const links = target.flatMap((span, step) => {
    const position = positions[step];
    return position === null ? [] : [[source[position], span]];
  });
  const all = [...source, ...target];
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
 * The probability of copying from each word; of a long source, the words that were copied and the likeliest others.
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

function addHeading(row, scope, word) {
  const heading = add(row, "th");
  heading.setAttribute("scope", scope);
  add(heading, "span", word.trim());
}

/** Adds the word behind its leading space. */
function addWord(parent, word, isOov) {
  const text = word.trimStart() || word;
  parent.append(word.slice(0, word.length - text.length));
  const span = add(parent, "span", text);
  span.classList.toggle("oov", isOov);
  return span;
}

function add(parent, name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** The language by which browsers choose between the Chinese and the Japanese forms of characters. */
const guessLanguage = (text) => (/[\u3040-\u30ff]/.test(text) ? "ja" : /[\u4e00-\u9fff]/.test(text) ? "zh" : "");

const shorten = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);

start().catch((error) => report(`The model cannot be loaded: ${error.message}`, true));
