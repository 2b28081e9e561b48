/** The page's model where `copynet-hf demo` runs it: asks the server for the outputs that copynet.js would compute. */

export class RemoteCopyNet {
  constructor(description) {
    this.generationConfig = description.generation_config;
    /** Whether the model copies. */
    this.copies = description.copies;
    /** Whether it reads facts. */
    this.readsFacts = description.reads_facts;
    /** Whether it reads features. */
    this.readsFeatures = description.reads_features;
    /** What separates them where they are typed. */
    this.featuresSeparator = description.features_separator;
    /** The regular expression of `copynet-hf demo --copied_only`, "" without it. */
    this.copiedOnly = description.copied_only;
  }

  /**
   * As `CopyNet.predict`, with what the page reads of a prediction; the server checks the options, among them `facts`:
   * lists of subject, property and object.
   */
  async predict(text, { facts, features, signal, ...options }) {
    const columns = { facts: this.readsFacts ? [facts] : null, features: features === undefined ? null : [features] };
    const body = JSON.stringify({ texts: [text], ...columns, ...options });
    const response = await fetch("predict", { method: "POST", body, signal });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer.outputs[0].map((output) => ({
      text: output.text,
      score: output.score,
      confidence: output.confidence,
      isTruncated: output.is_truncated,
      isCut: output.is_cut,
      words: output.words,
      wordScores: output.word_scores,
      oov: output.oov,
      copied: output.copied,
      sourcePositions: output.source_positions,
      copyProbs: output.probabilities,
      source: {
        spacedWords: output.spaced_source,
        oov: output.source_oov,
      },
    }));
  }
}
