/**
 * Processes the prompt host's items, in a thread of its pool or in its own. Its models are loaded before the first
 * item.
 */
import { getEnvironmentData } from 'node:worker_threads';
import type { Answer, HostSetup, ModelReport, WorkerTask } from './messages.js';
import { loadModels } from './models.js';
import { check, tokenize } from './tokenize.js';

const setup = getEnvironmentData('setup') as HostSetup;
const loaded = await loadModels(setup.models);
const models = new Map(loaded.map((model) => [model.model.id, model]));

// The first prompt takes several times what the second one takes, and this one has no caller who waits for it.
for (const { kind, model, report } of loaded) {
  if (kind !== 'chat') continue;
  warmUp(model.id, {});
  if (report.tools) warmUp(model.id, { tools: someTools() });
}

/** Enough for the schema compiler to have run through most of its code. */
function someTools(): readonly object[] {
  const names = Array.from({ length: 40 }, (_, i) => `p${i}`);
  const plain = { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) };
  const combined = { allOf: names.slice(0, 8).map((name) => ({ properties: { [name]: { type: 'string' } } })) };
  const parameters = { type: 'object', properties: { plain, combined } };
  return [{ type: 'function', function: { name: 'f', parameters } }];
}

function warmUp(model: string, more: object): void {
  const hello = { model, messages: [{ role: 'user', content: 'Hello' }], ...more };
  try {
    tokenize(models, 'chat', Buffer.from(JSON.stringify(hello)));
  } catch {
    // Its callers get the error; those of other models are not affected.
  }
}

export default function run(task: WorkerTask): readonly ModelReport[] | Answer {
  switch (task.kind) {
    case 'report':
      return loaded.map(({ report }) => report);
    case 'check':
      return check(task.form, task.bytes);
    case 'tokenize':
      return tokenize(models, task.form, task.bytes, task.compiled);
  }
}
