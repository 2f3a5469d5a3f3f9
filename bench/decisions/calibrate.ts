/**
 * The temperatures that make a model's probabilities truer, by type of question; what does not is left out.
 *
 *   node dist/bench/decisions/calibrate.js MODEL.gguf QUESTIONS.jsonl OUT.json
 *
 * Fitted on every second question of a type and kept where both the calibration error and Brier's score of the others fall. A GGUF
 * carries them as `ra_sidecar.calibration.TYPE`; a model that has some already is measured with them, so these come on top.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { Asker } from './asker.js';
import { at, brier, calibrationError, fittedTemperature, type Outcome } from './measures.js';
import { asked, readCases } from './questions.js';

/** Fewer questions on either side are not significant. */
const LEAST_QUESTIONS = 30;

const [file, questions, out] = process.argv.slice(2);
if (file === undefined || questions === undefined || out === undefined) {
  throw new Error('usage: calibrate MODEL.gguf QUESTIONS.jsonl OUT.json');
}

const outcomes = new Map<string, Outcome[]>();
const asker = await Asker.open(file);
for (const { input, questions: known } of readCases(await readFile(questions, 'utf8'))) {
  const all = known.map(asked);
  const answers = await asker.ask(
    input,
    all.map(({ question }) => question),
  );
  all.forEach(({ question, answer }, index) => {
    const { probabilities = [] } = answers[index] ?? {};
    outcomes.set(question.type, [...(outcomes.get(question.type) ?? []), { probabilities, answer }]);
  });
}
await asker.close();

const kept: Record<string, number> = {};
for (const [type, all] of outcomes) {
  const [fit, rest] = [0, 1].map((half) => all.filter((_, index) => index % 2 === half)) as [Outcome[], Outcome[]];
  if (rest.length < LEAST_QUESTIONS) continue;
  const temperature = Number(fittedTemperature(fit).toPrecision(3));
  const mended = rest.map((one) => at(temperature, one));
  const better = calibrationError(mended) < calibrationError(rest) && brier(mended) < brier(rest);
  process.stdout.write(
    `${type}: ${temperature}, calibration error ${calibrationError(rest).toFixed(4)} -> ${calibrationError(mended).toFixed(4)}, Brier ${brier(rest).toFixed(4)} -> ${brier(mended).toFixed(4)}: ${better ? 'kept' : 'left out'}\n`,
  );
  if (better) kept[type] = temperature;
}
await writeFile(out, `${JSON.stringify(kept, undefined, 2)}\n`);
