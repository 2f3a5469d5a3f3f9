/** A worker thread with a vocabulary-only model (its path is `workerData`): text in, number of tokens and round trip out. */
import { parentPort, workerData } from 'node:worker_threads';
import { cpuLlama } from './llama.js';

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: workerData as string, vocabOnly: true });

parentPort?.on('message', (text: string) => {
  const tokens = model.tokenize(text);
  parentPort?.postMessage({ tokens: tokens.length, same: model.detokenize(tokens) === text });
});
